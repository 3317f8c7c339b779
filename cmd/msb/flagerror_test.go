package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// What is wrong in a line is found before anything is made, pulled or booted, and said with what to write.
func TestI12_WrongFlagsStartNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args string
		code int
		say  string
	}{
		{"run --cpus 1.5 x", exitOther, `--cpus "1.5": write a whole number, such as --cpus 2`},
		{"run --pcap-keep many", exitOther, "such as --pcap-keep 2"},
		{"create --cpus two web", exitOther, "such as --cpus 2"},
		{"run --timeout 5 x", exitOther, `--timeout "5": write a number with its unit, such as --timeout 30s`},
		{"exec --timeout 5 web true", exitOther, "such as --timeout 30s"},
		{"run --pcap-age 1 x", exitOther, "such as --pcap-age 30s"},
		{"run --timeout -3s", exitOther, "more than 0"},
		{"gateway --mtu x", exitOther, "such as --mtu 2"},
		{"run --rm=maybe x", exitOther, "--rm=false"},
		{"run --memory", exitOther, "--memory lacks its value"},
		{"run --allw a.example", exitOther, "did you mean --allow?"},
		{"exec --tmeout 5s", exitOther, "did you mean --timeout?"},
		{"ls --jsn", exitOther, "did you mean --json?"},
		{"review --polcy p.toml", exitOther, "did you mean --policy?"},
		{"run --xyzzy a", exitOther, "unknown flag --xyzzy;"},
		{"run -Z", exitOther, "unknown flag -Z;"},
		{"cp -r a web:/", exitOther, "directories are always copied with what they hold"},
		{"cp --recursive a web:/", exitOther, "directories are always copied with what they hold"},
		{"dns a.example", exitOther, "--policy is missing; write --policy FILE"},
		{"gateway", exitOther, "--policy is missing"},
		{"gateway --policy p.toml", exitOther, "--listen is missing; write --listen unix://PATH"},
		{"review x.pcapng", exitOther, "--policy is missing"},
		{"policy explain p.toml", exitOther, "--to is missing; write --to HOST:PORT"},
		{"run -it -- sh", exitOther, "-it needs a terminal"},
		{"exec -it web sh", exitOther, "-it needs a terminal"},
		{"run -w src -- true", exitOther, `begins with "/", such as /src`},
		{"exec -w ../src web true", exitOther, `begins with "/", such as /src`},
		{"run --hostname a_b -- true", exitOther, "letters, digits, hyphens and dots"},
		{"run --hostname -a -- true", exitOther, "letters, digits, hyphens and dots"},
		{"run --hostname " + strings.Repeat("a", 65) + " -- true", exitOther, "at most 64"},
		{"create --hostname a..b web", exitOther, "letters, digits, hyphens and dots"},
		{"run --vm nosuch -- true", exitOther, `--vm "nosuch": it must be one of auto, krun, qemu; see msb run --help`},
		{"create --vm qmeu web", exitOther, "did you mean qemu?"},
		{"policy learn --help", exitOther, `no command "learn" under msb policy`},
		{"policy chek -h", exitOther, "did you mean check?"},
		{"inspec --help", exitOther, "did you mean inspect?"},
		{"rnu", exitOther, "did you mean run?"},
		{"run --floor a.toml --floor b.toml", exitOther, `--floor "b.toml": it is given twice; put both files together with include`},
		{"policy explain p.toml --floor a --to a.example --floor b", exitOther, "given twice"},
		{"run --policy a.toml --policy b.toml", exitOther, "given twice"},
		{"run -e -- true", exitOther, "write -e NAME=VALUE"},
		{"run --ulimit nofile -- true", exitOther, "write NAME=SOFT[:HARD]"},
		{"run --ulimit nofile=-2 -- true", exitOther, "write NAME=SOFT[:HARD]"},
		{"run --ulimit nofile=2:1 -- true", exitOther, "the smaller number first"},
		{"exec --ulimit wishes=1 web true", exitOther, `no limit "wishes"; write one of core, cpu`},
		{"run --rlimit nofile=1 -- true", exitOther, "use --ulimit"},
		{"run --tmpfs scratch -- true", exitOther, "write an absolute path, such as /tmp"},
		{"run --tmpfs /a/../b -- true", exitOther, "write an absolute path"},
		{"run --tmpfs / -- true", exitOther, "the guest's own"},
		{"create --tmpfs /dev/shm:size=1M web", exitOther, "the guest's own"},
		{"run --tmpfs /s:size=much -- true", exitOther, "is not a size"},
		{"run --tmpfs /s:mode=rwx -- true", exitOther, "such as mode=1777"},
		{"run --tmpfs /s:mode=10000 -- true", exitOther, "at most 7777"},
		{"run --tmpfs /s:uid=1 -- true", exitOther, `no option "uid=1"`},
		{"run --tmpfs /s --tmpfs /s:exec -- true", exitOther, "two of them"},
		{"run --tmpfs /s/t -v .:/s -- true", exitOther, "would cover it"},
		{"run -e =b true", exitOther, "write -e NAME=VALUE"},
	} {
		home := filepath.Join(t.TempDir(), "home")
		got := msb(t, []string{sandbox.EnvHome + "=" + home}, strings.Fields(tt.args)...)
		if got.code != tt.code || !strings.Contains(got.err, tt.say) || got.out != "" {
			t.Errorf("%s: %+v, want exit %d and %q", tt.args, got, tt.code, tt.say)
		}
		for _, raw := range []string{"strconv", "time:", "pflag", "required flag", "invalid argument"} {
			if strings.Contains(got.err, raw) {
				t.Errorf("%s: a library's words: %s", tt.args, got.err)
			}
		}
		if _, err := os.Lstat(home); err == nil {
			t.Errorf("%s: it made %s", tt.args, home)
		}
	}
}

// TestI15_EmptyFloorFlagsAreErrors: --floor "$FLOOR" ran without a floor. The twin names a file that isn't there.
func TestI15_EmptyFloorFlagsAreErrors(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--policy", "--floor", "--audit", "--pcap", "--learn", "--name"} {
		if got := msb(t, nil, "run", flag, "", "--", "true"); got.code != exitOther || !strings.Contains(got.err, "it is empty") {
			t.Errorf("%s \"\": %+v", flag, got)
		}
	}
	if got := msb(t, nil, "run", "--floor", "none/floor.toml", "--", "true"); got.code != exitPolicyMissing {
		t.Errorf("%+v", got)
	}
}
