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
// other files. Names are compared without a version and what stands behind it
// (python3.12, perl5.36-x86_64-linux-gnu).
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
	"taskset", "chrt", "choom", "prlimit", "setarch", "linux32", "linux64", "i386", "numactl", "bwrap", "firejail", "proxychains", "torsocks", "valgrind", "perf",
	"fakeroot", "eatmydata", "tini", "dumb-init", "gosu", "su-exec", "start-stop-daemon", "dbus-run-session", "entr", "unbuffer", "rlwrap", "screen", "tmux", "socat", "m4",
	"ld.so", "ld-linux-x86-64.so", "ld-linux-aarch64.so", "ld-musl-x86_64.so", "rundll",
}

// runner reports whether a program of that path runs other files.
func runner(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	if slices.Contains(runners, name) || slices.Contains(runners, strings.TrimRight(name, "0123456789.-")) {
		return true
	}
	if i := strings.IndexAny(name, "0123456789"); i > 0 { // perl5.36-x86_64-linux-gnu
		name = name[:i]
	}
	return slices.Contains(runners, strings.TrimRight(strings.TrimSuffix(name, "-static"), ".-"))
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
	return anyPath(text, func(path string) bool { return t.reachPath(path, dir) || t.around(path, dir) })
}

// anyPath reports whether text holds a path for which is is true.
func anyPath(text string, is func(path string) bool) bool {
	// Directories have names with any of these in them too.
	words := append(strings.Fields(text), text)
	words = append(words, strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune("\"'`;&|<>(){}$*?[]!\\=:,#", c) })...)
	for _, word := range words {
		for at := range word {
			// A path may stand behind anything: -C/dir, --dir=/dir, @/dir. What is
			// relative begins a word, or stands behind the letter of a flag.
			if (at == 0 || word[at] == '/' || word[0] == '-' || strings.ContainsRune("@%+", rune(word[at-1]))) && is(word[at:]) {
				return true
			}
		}
	}
	return false
}

// reachPath follows a path as the kernel would, part by part: a link on the way
// may lie in a tree or lead into it, and ".." out of it again.
func (t trees) reachPath(path, dir string) bool {
	// Links of /proc lead elsewhere in another process: to its working directory and its files.
	return slices.ContainsFunc(Way(from(path, dir)), func(step string) bool { return t.hold(step) || ofProcess(step) })
}

// around reports whether path is a directory around a tree.
func (t trees) around(path, dir string) bool {
	real, err := filepath.EvalSymlinks(from(path, dir))
	return err == nil && t.below(real)
}

// from is what a path means in dir.
func from(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return dir + "/" + path
}

// ofProcess reports whether a path is of one process, in /proc.
func ofProcess(real string) bool {
	pid, ok := strings.CutPrefix(real, "/proc/")
	return ok && pid != "" && pid[0] >= '0' && pid[0] <= '9'
}
