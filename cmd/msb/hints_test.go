package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestSlipsHaveRemedies: what other tools' users type, and slips of the words around a command, are errors that say what
// to write.
func TestSlipsHaveRemedies(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"rmi x":                      `unknown command "rmi": use msb image rm`,
		"load -i x":                  `unknown command "load": use msb image load`,
		"nosuch --help":              `unknown command "nosuch"`,
		"image import x":             `no command "import" under msb image: name the archive as the image`,
		"policy learn x":             `no command "learn" under msb policy: use msb review --learn`,
		"help nosuch":                `unknown command "nosuch"`,
		"help policy nosuch":         `no command "nosuch" under msb policy`,
		"help run x":                 `"x" is too much`,
		"doctor x":                   "msb doctor takes no arguments",
		"image prune x":              "msb image prune takes no arguments",
		"policy schema x":            "msb policy schema takes no arguments",
		"create a -- ls":             "msb exec a -- COMMAND",
		"container ls -a":            "msb ls, msb run, msb rm",
		"checkpoint create a b":      "msb snapshot create",
		"compose up -d":              "msb run -d --name NAME",
		"image tag a b":              "msb commit NAME IMAGE",
		"snapshot save a b":          "use msb snapshot export",
		"touch a":                    `unknown command "touch": use msb keep`,
		"branch a b":                 `unknown command "branch": use msb clone`,
		"commit -m text a b":         "leave it out",
		"commit -c CMD=x a b":        "msb run has flags for others",
		"top a -o pid":               "msb exec NAME ps",
		"ls -l":                      "running or not; leave it out",
		"stop -t 5 a":                "leave it out",
		"kill -9 a":                  "write -s 9;",
		"kill -15 a":                 "write -s 15;",
		"kill -TERM a":               "write -s TERM;",
		"events -n 5 a":              "pipe it into tail",
		"run --stop-signal x -- ls":  "msb kill -s SIGNAL",
		"run --env-file nosuch -- a": `msb: --env-file "nosuch": it can't be read;`,
		"policy explain offline --to a.example:443/icmp": "write a.example/icmp",
	} {
		if got := msb(t, nil, strings.Fields(line)...); got.code != exitOther || !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("msb %s: exit %d: %s, want %q", line, got.code, got.err, want)
		}
	}
	for line, want := range map[string]string{
		"top web aux":               `"aux" is too much: name the sandbox`,
		"rename a b c":              `"c" is too much`,
		"image history a b":         `"b" is too much`,
		"create web alpine sh":      "msb exec web -- COMMAND",
		"port web --nosuch":         "unknown flag --nosuch",
		"port web 80 81":            `"81" is too much`,
		"run -p 8000-8010 -- a":     "publish each port by itself",
		"run -p 1.2.3.4:8-9:8 -- a": "publish each port by itself",
	} {
		if got := msb(t, nil, strings.Fields(line)...); got.code != exitOther || !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("msb %s: exit %d: %s, want %q", line, got.code, got.err, want)
		}
	}
	if got := msb(t, nil, "help", "policy", "check"); got.code != 0 || !strings.Contains(got.out, "msb policy check FILE") {
		t.Errorf("msb help policy check: %+v", got)
	}
	if got := msb(t, nil, "ls", "--format", "json"); got.code != 0 || got.out != "[]\n" {
		t.Errorf("msb ls --format json: %+v", got)
	}
	for _, c := range newRoot(newUI(nil, nil)).Commands() {
		help := msb(t, nil, c.Name(), "--help").out
		for _, empty := range []string{"(default [])", "(default 0s)", "(default \"\")"} {
			if strings.Contains(help, empty) {
				t.Errorf("an empty default %s in the help of msb %s", empty, c.Name())
			}
		}
	}
}

// dockersCommands are those of docker 28 and of the groups that msb has, too.
const dockersCommands = `attach build builder buildx checkpoint commit compose config container context cp create diff events exec export
history image images import info inspect kill load login logout logs manifest network node pause plugin port ps pull push rename
restart rm rmi run save search secret service stack start stats stop swarm system tag top trust unpause update version volume wait`

var dockersCommandsBelow = map[string]string{
	"image":  "build history import inspect load ls list prune pull push rm remove save tag",
	"volume": "create inspect ls list prune rm remove update",
}

// TestDockersCommandsAreKnown: each is msb's too, or the error says what to do instead of it.
func TestDockersCommandsAreKnown(t *testing.T) {
	t.Parallel()
	root := newRoot(newUI(nil, nil))
	for _, word := range strings.Fields(dockersCommands) {
		if c, _, err := root.Find([]string{word}); (err != nil || c == root) && otherWords[word] == "" {
			t.Errorf("msb says nothing of docker %s", word)
		}
	}
	for group, words := range dockersCommandsBelow {
		for _, word := range strings.Fields(words) {
			if c, _, err := root.Find([]string{group, word}); (err != nil || c.Name() == group) && otherWordsBelow[group][word] == "" {
				t.Errorf("msb %s says nothing of docker %s %s", group, group, word)
			}
		}
	}
}

// TestForeignFlagsAreForeign: a remedy for a flag that msb has by now would never be shown.
func TestForeignFlagsAreForeign(t *testing.T) {
	t.Parallel()
	root := newRoot(newUI(nil, nil))
	for path, flags := range verbFlags {
		for name := range flags {
			if hasFlag(t, root, path, name) {
				t.Errorf("msb %s has the flag %s", path, name)
			}
		}
	}
	for name := range otherFlags {
		for _, path := range runLike {
			if hasFlag(t, root, path, name) {
				t.Errorf("msb %s has the flag %s", path, name)
			}
		}
	}
	for group, words := range otherWordsBelow {
		for word := range words {
			if c, _, err := root.Find([]string{group, word}); err != nil || c.Name() != group {
				t.Errorf("msb %s has the command %s", group, word)
			}
		}
	}
	for word := range otherWords {
		if c, rest, _ := root.Find([]string{word}); c != root || len(rest) == 0 {
			t.Errorf("msb has the command %s", word)
		}
	}
}

// hasFlag tells whether the command has a flag of this name, or with this letter.
func hasFlag(t *testing.T, root *cobra.Command, path, name string) bool {
	t.Helper()
	c := find(root, path)
	if c == nil || "msb "+path != c.CommandPath() {
		t.Fatalf("there is no msb %s", path)
	}
	c.InitDefaultHelpFlag()
	return c.Flags().Lookup(name) != nil || len(name) == 1 && c.Flags().ShorthandLookup(name) != nil
}

// TestRunsFlagsAreKnown: who gives a flag of msb run to a command for a sandbox that is there, or that runs it some other way,
// is told what to do.
func TestRunsFlagsAreKnown(t *testing.T) {
	t.Parallel()
	root := newRoot(newUI(nil, nil))
	run := find(root, "run")
	for _, path := range []string{"create", "start", "restart", "exec", "shell", "attach", "update", "install", "warm"} {
		run.Flags().VisitAll(func(f *pflag.Flag) {
			for _, name := range []string{f.Name, f.Shorthand} {
				if name != "" && name != "h" && !hasFlag(t, root, path, name) && otherFlag(find(root, path), name) == "" {
					t.Errorf("msb %s says nothing of msb run's flag %s", path, name)
				}
			}
		})
	}
	for line, want := range map[string]string{
		"start -p 8080:80 web": "msb port add", "start -e A=b web": "msb env set", "update --env A=b web": "msb env set", "exec -p 80 web ls": "msb port add",
		"attach -it web": "when the sandbox is made", "shell -it web": "leave it out", "create --copy a:b web": "msb cp", "install -it alpine": "leave it out",
		"install --rm alpine": "leave it out", "install --copy a:b alpine": "-v HOST:GUEST", "exec -v .:/work web ls": "when the sandbox is made",
	} {
		if got := msb(t, nil, strings.Fields(line)...); got.code != exitOther || !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("msb %s: exit %d: %s, want %q", line, got.code, got.err, want)
		}
	}
}

// TestFlagsForDockersSakeChangeNothing: what docker asks for with a flag, and msb does anyway.
func TestFlagsForDockersSakeChangeNothing(t *testing.T) {
	t.Parallel()
	env := []string{"MSB_HOME=" + filepath.Join(t.TempDir(), "home")}
	if got := msb(t, env, "volume", "create", "data"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, both := range [][2]string{
		{"ls", "ls -a --no-trunc"}, {"ps -q", "ps -aq"}, {"image ls -q", "image ls -aq"}, {"image prune", "image prune -f"},
		{"volume prune --dry-run", "volume prune --dry-run --force"}, {"prune", "prune --force"},
	} {
		plain, same := msb(t, env, strings.Fields(both[0])...), msb(t, env, strings.Fields(both[1])...)
		if plain.code != 0 || plain != same {
			t.Errorf("msb %s: %+v; msb %s: %+v", both[0], plain, both[1], same)
		}
	}
}

// dockersFlags are those of docker 28's commands, by the words of msb's.
var dockersFlags = map[string]string{
	"attach":  "detach-keys no-stdin sig-proxy",
	"commit":  "a author c change m message p pause",
	"cp":      "a archive L follow-link q quiet",
	"create":  "i interactive t tty rm name entrypoint u user w workdir ulimit e env h v p l m",
	"events":  "f filter format since until",
	"exec":    "d detach detach-keys e env env-file i interactive privileged t tty u user w workdir",
	"inspect": "f format s size type",
	"kill":    "s signal",
	"login":   "p password password-stdin u username",
	"logs":    "details f follow since n tail t timestamps until",
	"ls":      "a all f filter format n last l latest no-trunc q quiet s size",
	"prune":   "a all filter f force volumes",
	"restart": "s signal t time timeout",
	"rm":      "f force l link v volumes",
	"run": "add-host annotation a attach blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns cidfile cpu-count cpu-percent " +
		"cpu-period cpu-quota cpu-rt-period cpu-rt-runtime c cpu-shares cpus cpuset-cpus cpuset-mems d detach detach-keys device device-cgroup-rule " +
		"device-read-bps device-read-iops device-write-bps device-write-iops disable-content-trust dns dns-opt dns-option dns-search domainname " +
		"entrypoint e env env-file expose gpus group-add health-cmd health-interval health-retries health-start-interval health-start-period " +
		"health-timeout help h hostname init i interactive io-maxbandwidth io-maxiops ip ip6 ipc isolation kernel-memory l label label-file link " +
		"link-local-ip log-driver log-opt mac-address m memory memory-reservation memory-swap memory-swappiness mount name net net-alias network " +
		"network-alias no-healthcheck oom-kill-disable oom-score-adj pid pids-limit platform privileged p publish P publish-all pull q quiet " +
		"read-only restart rm runtime security-opt shm-size sig-proxy stop-signal stop-timeout storage-opt sysctl tmpfs t tty ulimit " +
		"use-api-socket u user userns uts v volume volume-driver volumes-from w workdir",
	"start": "a attach checkpoint checkpoint-dir detach-keys i interactive",
	"stats": "a all format no-stream no-trunc",
	"stop":  "s signal t time timeout",
	"update": "blkio-weight cpu-period cpu-quota cpu-rt-period cpu-rt-runtime c cpu-shares cpus cpuset-cpus cpuset-mems m memory memory-reservation " +
		"memory-swap pids-limit restart",
	"image history":  "format H human no-trunc platform q quiet",
	"image inspect":  "f format platform",
	"image load":     "i input platform q quiet",
	"image ls":       "a all digests f filter format no-trunc q quiet tree",
	"image prune":    "a all filter f force",
	"image pull":     "a all-tags disable-content-trust platform q quiet",
	"image rm":       "f force no-prune platform",
	"image save":     "o output platform",
	"volume create":  "d driver label name o opt",
	"volume inspect": "f format",
	"volume ls":      "cluster f filter format q quiet",
	"volume prune":   "a all filter f force",
	"volume rm":      "f force",
}

// TestDockersFlagsAreKnown: each is msb's too, or the error says what to do instead of it. What one command says of a flag is
// of no use at another with the same last word.
func TestDockersFlagsAreKnown(t *testing.T) {
	t.Parallel()
	root := newRoot(newUI(nil, nil))
	for path, flags := range dockersFlags {
		for _, name := range strings.Fields(flags) {
			if !hasFlag(t, root, path, name) && otherFlag(find(root, path), name) == "" {
				t.Errorf("msb %s says nothing of docker's flag %s", path, name)
			}
		}
	}
	for line, want := range map[string]string{
		"volume prune -a":                "those with names",
		"volume create --driver local v": "--size",
		"ps --size":                      "the disk's size",
		"update --memory-swap 1 web":     "no swap",
		"run --userns host -- true":      "shares no namespace",
		"create -it web":                 "msb exec",
		"stop --label a=b":               "--filter label=KEY=VALUE",
		"snapshot create --full web":     "--memory",
		"install --privileged alpine":    "leave it out",
	} {
		if got := msb(t, nil, strings.Fields(line)...); got.code != exitOther || !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("msb %s: exit %d: %s, want %q", line, got.code, got.err, want)
		}
	}
}
