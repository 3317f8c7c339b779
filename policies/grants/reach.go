package grants

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// maxWord bounds an argument that is looked at closely, in bytes. A longer one
// counts as code.
const maxWord = 256

// runners are programs whose arguments, or whose working directory, make them run
// other files. Names are compared without a version behind them (python3.12).
var runners = []string{
	"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "tcsh", "csh", "busybox", "toybox", "rbash",
	"env", "xargs", "find", "fd", "parallel", "watch", "flock", "timeout", "nohup", "nice", "ionice", "setsid", "stdbuf", "time", "strace",
	"ltrace", "gdb", "sudo", "su", "doas", "pkexec", "runuser", "setpriv", "unshare", "nsenter", "chroot", "script", "expect", "run-parts", "systemd-run",
	"make", "gmake", "ninja", "cmake", "just", "task", "rake", "scons", "bazel", "gradle", "gradlew", "mvn", "ant",
	"npm", "npx", "pnpm", "yarn", "node", "nodejs", "deno", "bun", "tsx", "ts-node", "corepack",
	"python", "pypy", "ipython", "pip", "pipx", "pipenv", "poetry", "uv", "uvx", "tox", "pytest", "conda",
	"perl", "ruby", "bundle", "gem", "irb", "lua", "luajit", "php", "composer", "tclsh", "wish", "guile", "racket", "sbcl", "emacs", "vim", "vi", "nvim", "ed", "ex",
	"awk", "gawk", "mawk", "sed", "gsed", "tar", "rsync", "ssh", "scp", "git", "hg", "svn", "docker", "podman", "kubectl", "nix", "nix-shell", "direnv", "mise", "asdf",
	"java", "kotlin", "scala", "groovy", "go", "cargo", "dotnet", "mono", "swift", "julia", "rscript", "r", "ghc", "runghc", "stack", "cabal", "elixir", "erl", "escript", "mix", "osascript",
	"ld.so", "ld-linux-x86-64.so", "ld-linux-aarch64.so", "ld-musl-x86_64.so", "rundll",
}

// runner reports whether a program of that path runs other files.
func runner(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	return slices.Contains(runners, name) || slices.Contains(runners, strings.TrimRight(name, "0123456789.-"))
}

// plain reports whether an argument is words and no code: it holds nothing that a
// shell or another language would expand, quote or separate commands with.
func plain(arg string) bool {
	return len(arg) <= maxWord && !strings.ContainsFunc(arg, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(" _@%+=:,./-", c)
	})
}

// reach reports whether text names something in a tree, or a directory around
// one, for a program that runs in dir.
func (t trees) reach(text, dir string) bool {
	words := strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune("\"'`;&|<>(){}$*?[]!\\=:,#", c) })
	for _, word := range words {
		for at := range word {
			// A path may stand behind anything: -C/dir, --dir=/dir, @/dir. What is
			// relative begins a word, or stands behind the letter of a flag.
			if (at == 0 || word[at] == '/' || word[0] == '-' || strings.ContainsRune("@%+", rune(word[at-1]))) && t.reachPath(word[at:], dir) {
				return true
			}
		}
	}
	return false
}

// reachPath follows a path as the kernel would, part by part: a link on the way
// may lead into a tree, and ".." out of it again.
func (t trees) reachPath(path, dir string) bool {
	if !filepath.IsAbs(path) {
		path = dir + "/" + path
	}
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != '/' {
			continue
		}
		real, err := filepath.EvalSymlinks(path[:end])
		if err != nil {
			return false
		}
		if t.hold(real) || end == len(path) && t.below(real) {
			return true
		}
	}
	return false
}
