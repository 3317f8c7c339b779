package cow

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/msb-project/msb/internal/foldname"
)

// rule refuses files that programs of the host run or are steered by, without
// anybody having said so. Patterns are of consecutive elements of a path
// (path.Match), in lower case: what lies below a match is refused too.
type rule struct {
	name, why string
	patterns  []string
}

var rules = []rule{
	{"direnv", "direnv runs it when a shell enters the directory", []string{".envrc", ".direnv"}},
	{"shell", "a shell runs it when it starts", []string{
		".bashrc", ".bash_*", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".xprofile", ".xinitrc", ".xsession*", ".config/fish", ".cshrc", ".tcshrc", ".kshrc",
	}},
	{"editor", "editors run what it names when the directory is opened", []string{
		".vscode", ".idea", ".fleet", ".zed", "*.code-workspace", ".devcontainer", ".devcontainer.json", ".vim", ".vimrc", ".gvimrc", ".nvimrc", ".nvim.lua", ".exrc", ".dir-locals*.el", "*.sublime-project",
	}},
	{"hooks", "it runs at a commit or a push", []string{
		".husky", ".githooks", ".git-hooks", ".pre-commit-config.y*ml", ".pre-commit-hooks.y*ml", "lefthook*.y*ml", ".lefthook*", "lefthook*.toml", "lefthook*.json", ".overcommit.yml", ".lintstagedrc*", "lint-staged.config.*",
	}},
	{"agent", "a coding agent on this machine reads it, and runs what it names", []string{
		".claude", ".mcp.json", ".cursor", ".codex", ".gemini", ".continue", ".windsurf", ".opencode", "opencode.json*", ".aider*", ".roo", ".kiro", ".amazonq",
	}},
	{"tool", "a tool reads it as settings, which say what the tool runs", []string{
		".npmrc", ".yarnrc*", ".yarn", ".pnp.*", ".pnpmfile.*", ".cargo", "rust-toolchain*", ".mvn", ".bazelrc", ".bundle", ".irbrc", ".pryrc", ".gdbinit", ".lldbinit", ".mise*", "mise*.toml", ".tool-versions",
		"*.pth", "sitecustomize.py", "usercustomize.py", "pyvenv.cfg", ".terraformrc", "bunfig.toml", ".watchmanconfig", ".hgrc", ".hg",
	}},
	{"policy", "msb may be run with it as its policy", []string{"policy.toml"}},
	{"home", "programs of yours read it", []string{
		".ssh", ".gnupg", ".gitconfig", ".config/git", ".config/systemd", ".config/autostart", ".local", ".pam_environment", ".docker", ".kube", ".aws", ".netrc",
	}},
}

// gitPlain are what git keeps in its directory and never runs or reads as
// settings. Everything else there is refused: hooks, config, attributes, the
// commands of a rebase, other object stores.
var gitPlain = []string{
	"objects/[0-9a-f][0-9a-f]", "objects/pack", "objects/info/packs", "objects/info/commit-graph*", "refs", "logs", "index", "head", "orig_head", "fetch_head", "merge_head", "merge_msg", "merge_mode",
	"cherry_pick_head", "revert_head", "auto_merge", "commit_editmsg", "packed-refs", "shallow", "description", "info/exclude", "info/refs",
}

// gitDirs are the directories around those.
var gitDirs = []string{"", "objects", "objects/info", "info", "branches"}

// building are files that builds and tests run.
var building = []string{
	"makefile", "gnumakefile", "*.mk", "package.json", "cmakelists.txt", "*.cmake", "build.rs", "build.zig", "*.gradle", "*.gradle.kts", "gradlew*", "pom.xml", "setup.py", "setup.cfg", "pyproject.toml",
	"conftest.py", "tox.ini", "noxfile.py", "rakefile", "gemfile", "*.gemspec", "justfile", "taskfile.y*ml", "dockerfile*", "docker-compose*.y*ml", "compose.y*ml", "configure", "meson.build", "workspace*", "build.bazel", "*.bzl",
	".github/workflows", ".gitlab-ci.yml", ".circleci", "jenkinsfile", "*.config.js", "*.config.ts", "*.config.mjs", "*.config.cjs", ".eslintrc*", ".gitmodules", ".gitattributes",
}

const (
	buildingNote = "runs when you build or test"
	gitRefusal   = "git"
)

// steering are the files of a repository that say what git runs, and where else
// it looks for them.
var steering = []string{"config", "config.worktree", "hooks", "commondir", "gitdir"}

// byName are the refusals for what a file of that type is called. repository
// reports whether a directory has a HEAD, by which git takes it for a bare
// repository.
func byName(p string, mode fs.FileMode, repository func(dir string) bool) (all []Refusal, note string) {
	whole, elements := strings.Split(p, "/"), strings.Split(foldname.Path(p), "/")
	if why := gitRuns(whole, elements, mode, repository); why != "" {
		all = append(all, Refusal{Name: gitRefusal, Why: why})
	}
	for _, r := range rules {
		if holdsAny(elements, r.patterns) {
			all = append(all, Refusal{Name: r.name, Why: r.why})
		}
	}
	if holdsAny(elements, building) {
		note = buildingNote
	}
	return all, note
}

// gitRuns says why git is steered by a file; "" for one that steers nothing.
func gitRuns(whole, folded []string, mode fs.FileMode, repository func(dir string) bool) string {
	const why = "git runs it, or is steered by it"
	in := slices.Index(folded, ".git")
	for i, e := range folded {
		rest := folded[i+1:]
		switch {
		// As a file it names another directory, and so does a link in it.
		case e == ".git" && (!inGit(rest) || len(rest) == 0 && !mode.IsDir() || mode.Type() == fs.ModeSymlink):
			return why
		case in < 0 && i > 0 && slices.Contains(steering, e) && repository(path.Join(whole[:i]...)):
			return why + ": there is a HEAD beside it, as in a bare repository"
		}
	}
	return ""
}

// inGit reports whether a path in a .git is plain data.
func inGit(rest []string) bool {
	joined := strings.Join(rest, "/")
	return slices.Contains(gitDirs, joined) || slices.ContainsFunc(gitPlain, func(p string) bool {
		n := strings.Count(p, "/") + 1
		ok, err := path.Match(p, strings.Join(rest[:min(n, len(rest))], "/"))
		return ok && err == nil
	})
}

// holdsAny reports whether a pattern matches consecutive elements.
func holdsAny(elements, patterns []string) bool {
	for _, p := range patterns {
		n := strings.Count(p, "/") + 1
		for i := 0; i+n <= len(elements); i++ {
			if ok, err := path.Match(p, strings.Join(elements[i:i+n], "/")); ok && err == nil {
				return true
			}
		}
	}
	return false
}
