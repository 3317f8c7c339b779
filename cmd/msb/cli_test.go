package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const policyText = `version = 1
[[egress.allow]]
name = "api"
hosts = ["api.example.com"]
protocol = "https"
methods = ["GET"]
`

func TestI12_BadInputHasItsExitCode(t *testing.T) {
	good := write(t, "good.toml", policyText)
	bad := write(t, "bad.toml", "version = 1\n[egress]\ndefault = \"sure\"\n")
	roots := write(t, "roots.toml", policyText+"[[tls.extra_ca]]\nhosts = [\"api.example.com\"]\nfile = \"/nosuch.pem\"\n")
	floor := write(t, "floor.toml", "version = 1\n[[egress.allow]]\nhosts = [\"other.example.com\"]\n")
	asks := write(t, "asks.toml", "version = 1\n[hosts]\n\"internal.example\" = \"127.0.0.1:80\"\n")
	peers := write(t, "peers.toml", "version = 1\n[[ingress.allow]]\nsandboxes = [\"web\"]\nports = [5432]\n")
	tests := []struct {
		name string
		args []string
		env  []string
		code int
		say  string
	}{
		{"policy missing", []string{"run", "--policy", "nosuch.toml"}, nil, exitPolicyMissing, "nosuch.toml"},
		{"policy wrong", []string{"run", "--policy", bad}, nil, exitPolicyInvalid, "bad.toml:3:"},
		{"policy check", []string{"policy", "check", good, bad}, nil, exitPolicyInvalid, "bad.toml:3:"},
		{"policy check of a file of roots that is missing", []string{"policy", "check", roots}, nil, exitOther, "nosuch.pem"},
		{"policy check under a floor that forbids", []string{"policy", "check", "--floor", floor, asks}, nil, exitPolicyInvalid, "internal.example"},
		{"policy explain under a floor", []string{"policy", "explain", "--floor", floor, good, "--to", "api.example.com:443", "--json"}, nil, exitDenied, ""},
		{"sandbox name", []string{"create", "../x"}, nil, exitSandbox, "lower-case letters"},
		{"no such sandbox", []string{"exec", "nosuch", "true"}, nil, exitSandbox, "msb ls"},
		{"rename of none", []string{"rename", "nosuch", "other"}, nil, exitSandbox, "msb ls"},
		{"rename without a new name", []string{"rename", "nosuch"}, nil, exitOther, "what it is to be called"},
		{"env of none", []string{"env", "set", "nosuch", "A=b"}, nil, exitSandbox, "msb ls"},
		{"env without a value", []string{"env", "set", "nosuch", "A_VARIABLE_THAT_IS_NOT_SET"}, nil, exitOther, "is not set here: write A_VARIABLE_THAT_IS_NOT_SET=VALUE"},
		{"prune of a name", []string{"prune", "web"}, nil, exitOther, "msb rm NAME"},
		{"prune in two forms", []string{"prune", "--json", "-q"}, nil, exitOther, "give one of them"},
		{"exec without a command", []string{"exec", "nosuch"}, nil, exitOther, "name the command"},
		{"a volume without a place", []string{"run", "-v", "data:src", "alpine"}, nil, exitOther, "write ./data"},
		{"-v of a volume of an unknown mode", []string{"run", "-v", "data:/src:cow"}, nil, exitOther, "ro or rw"},
		{"-v of a volume under a floor", []string{"run", "-v", "data:/src", "--floor", floor, "--policy", good}, nil, exitOther, "leave -v out"},
		{"more volumes than there is room for", []string{"run", "-v", "a:/a", "-v", "b:/b", "-v", "c:/c", "-v", "d:/d"}, nil, exitOther, "room for 3"},
		{"a volume twice", []string{"run", "-v", "a:/a", "-v", "a:/b"}, nil, exitOther, "two of the same"},
		{"a volume over the guest's own", []string{"run", "-v", "a:/proc"}, nil, exitOther, "the guest's own"},
		{"no such volume", []string{"volume", "rm", "nosuch"}, nil, exitSandbox, "msb volume ls"},
		{"a volume's name", []string{"volume", "create", "../x"}, nil, exitSandbox, "letters, digits"},
		{"a volume's size", []string{"volume", "create", "--size", "huge", "x"}, nil, exitOther, "--size"},
		{"a copy between no volume", []string{"volume", "cp", "./a", "./b"}, nil, exitOther, "neither is in a sandbox"},
		{"-v of an unknown mode", []string{"create", "--volume=.:/src:z", "web"}, nil, exitOther, "ro, rw or cow"},
		{"-v of what isn't there", []string{"run", "-v", "./nosuch:/src"}, nil, exitOther, "there is no"},
		{"-v over all settings of the guest", []string{"run", "-v", ".:/etc"}, nil, exitOther, "the guest's own"},
		{"-v over the guest's own", []string{"run", "-v", ".:/proc/x"}, nil, exitOther, "the guest's own"},
		{"-v under a floor", []string{"run", "-v", ".:/src", "--floor", floor, "--policy", good}, nil, exitOther, "leave -v out"},
		{"--hide of no pattern", []string{"run", "-v", ".:/src", "--hide", "/x"}, nil, exitOther, "no pattern of names"},
		{"docker's --mount", []string{"create", "--mount", "type=bind", "web"}, nil, exitOther, "-v HOST:GUEST"},
		{"-p for other machines", []string{"run", "-p", "0.0.0.0:8080:80", "nginx"}, nil, exitOther, "lets none connect"},
		{"-p of SCTP", []string{"run", "-p127.0.0.1:8080:80/sctp", "nginx"}, nil, exitOther, "tcp or udp"},
		{"-p without a guest's port", []string{"create", "--publish=8080:", "web"}, nil, exitOther, "HOSTPORT:PORT"},
		{"-p without a network", []string{"run", "--no-net", "-p", "8080:80"}, nil, exitOther, "can't be reached"},
		{"-p twice", []string{"run", "-p", "8080:80", "-p", "[::1]:8080:81"}, nil, exitOther, "two of them at [::1]:8080"},
		{"-p under a floor", []string{"run", "-p", "8080:80", "--floor", floor, "--policy", good}, nil, exitOther, "leave the ports out"},
		{"-p of a file", []string{"create", "-p", good, "web"}, nil, exitOther, "use --policy FILE"},
		{"-p of a file elsewhere", []string{"gateway", "-p", good}, nil, exitOther, "use --policy FILE"},
		{"a secret without a host", []string{"run", "--secret", "T=env:T"}, nil, exitOther, "names no host"},
		{"no such preset", []string{"policy", "from-flags", "--preset", "pipy"}, nil, exitOther, "did you mean \"pypi\"?"},
		{"docker's --add-host", []string{"run", "--add-host", "db:10.0.0.5"}, nil, exitOther, "write NAME=TARGET"},
		{"a secret beyond the floor", []string{"run", "--floor", floor, "--secret", "T=env:T@other.example.com"}, nil, exitPolicyInvalid, "floor names no secret"},
		{"keep of none", []string{"keep", "nosuch"}, nil, exitSandbox, "msb ls"},
		{"update of nothing", []string{"update", "nosuch"}, nil, exitOther, "nothing to change"},
		{"update of none", []string{"update", "--memory", "1G", "nosuch"}, nil, exitSandbox, "msb ls"},
		{"a negative time", []string{"run", "--max-duration", "-1h"}, nil, exitOther, "write a time such as 30m"},
		{"update to no policy", []string{"update", "--restart", "sometimes", "nosuch"}, nil, exitOther, "on-failure:N or always"},
		{"stats of none", []string{"stats", "nosuch"}, nil, exitSandbox, "msb ls"},
		{"stats in two ways", []string{"stats", "--watch", "--no-stream"}, nil, exitOther, "give one of them"},
		{"metrics at a name", []string{"metrics", "--listen", "web:9464"}, nil, exitOther, "write PORT"},
		{"--no-net with --preset", []string{"run", "--no-net", "--preset", "pypi"}, nil, exitOther, "--no-net"},
		{"--restart of no policy", []string{"run", "-d", "--restart", "sometimes"}, nil, exitOther, "on-failure:N or always"},
		{"docker's --restart unless-stopped", []string{"create", "--restart", "unless-stopped", "web"}, nil, exitOther, "write always"},
		{"--restart with --rm", []string{"run", "-d", "--rm", "--restart", "always"}, nil, exitOther, "leave one out"},
		{"--restart without -d", []string{"run", "--name", "web", "--restart", "always", "--", "true"}, nil, exitOther, "give -d too"},
		{"--restart of one that goes", []string{"run", "--restart", "on-failure", "--", "true"}, nil, exitOther, "give -d too"},
		{"a label without a name", []string{"run", "--label", "a=b"}, nil, exitOther, "give --name too"},
		{"a label without a key", []string{"create", "--label", "=b", "web"}, nil, exitOther, "write --label KEY=VALUE"},
		{"an unknown filter", []string{"ls", "--filter", "name=web"}, nil, exitOther, "label=KEY=VALUE"},
		{"no such file of variables", []string{"exec", "--env-file", "nosuch", "web", "true"}, nil, exitOther, "NAME=VALUE on each line"},
		{"explain of a client", []string{"policy", "explain", good, "--from", "192.168.1.7"}, nil, exitDenied, ""},
		{"explain of this machine", []string{"policy", "explain", good, "--from", "127.0.0.1", "--json"}, nil, 0, ""},
		{"explain of a client and a destination", []string{"policy", "explain", good, "--from", "192.168.1.7", "--to", "a.example:443"}, nil, exitOther, "give one of them"},
		{"explain of no client", []string{"policy", "explain", good, "--from", "x"}, nil, exitOther, "such as 192.168.1.7"},
		{"explain of a sandbox", []string{"policy", "explain", peers, "--from", "sandbox:web:5432"}, nil, 0, ""},
		{"explain of a sandbox's other port", []string{"policy", "explain", peers, "--from", "sandbox:web:80", "--json"}, nil, exitDenied, ""},
		{"explain of a sandbox without a port", []string{"policy", "explain", peers, "--from", "sandbox:web"}, nil, exitOther, "sandbox:web:5432"},
		{"explain of a sandbox's name alone", []string{"policy", "explain", peers, "--from", "web"}, nil, exitOther, "docs/ports.md"},
		{"docker's -P", []string{"run", "-P", "nginx"}, nil, exitOther, "name each port"},
		{"docker's --network none", []string{"run", "--network", "none", "alpine"}, nil, exitOther, "--no-net is none at all"},
		{"docker's --privileged", []string{"exec", "--privileged", "web", "sh"}, nil, exitOther, "leave it out"},
		{"docker's -m 512 (bytes)", []string{"run", "-m", "512"}, nil, exitOther, "that is 512 bytes; write 512M"},
		{"docker's -m 512b", []string{"run", "-m", "512b"}, nil, exitOther, "write 512M"},
		{"a disk without a unit", []string{"run", "--disk", "10"}, nil, exitOther, "write 10M"},
		{"-e of nothing", []string{"run", "-e", "=x"}, nil, exitOther, "write -e NAME=VALUE"},
		{"a job's name", []string{"exec", "-d", "--job", "../x", "web", "true"}, nil, exitSandbox, "unusable job name"},
		{"--job without -d", []string{"exec", "--job", "x", "web", "true"}, nil, exitOther, "give -d too"},
		{"a job of no sandbox", []string{"job", "ls", "nosuch"}, nil, exitSandbox, "msb ls"},
		{"a job without a sandbox", []string{"job", "logs", "x"}, nil, exitOther, "name the sandbox and the job"},
		{"--tail of no number", []string{"job", "logs", "-n", "x", "web", "a"}, nil, exitOther, "or all"},
		{"--since of no time", []string{"job", "logs", "--since", "soon", "web", "a"}, nil, exitOther, "10m"},
		{"no such signal", []string{"job", "kill", "-s", "NONE", "web", "a"}, nil, exitOther, "such as TERM"},
		{"no such job command", []string{"job", "lgs"}, nil, exitOther, "did you mean"},
		{"no such flag", []string{"run", "--bogus"}, nil, exitOther, "msb run --help"},
		{"no such command", []string{"bogus"}, nil, exitOther, "unknown command"},
		{"no such command, but one nearly", []string{"inspec"}, nil, exitOther, "did you mean inspect?"},
		{"another tool's command", []string{"images"}, nil, exitOther, "msb image ls"},
		{"attach to no sandbox", []string{"attach", "nosuch"}, nil, exitSandbox, "msb ls"},
		{"keys that are none", []string{"attach", "--detach-keys", "ctrl-p,,ctrl-q", "web"}, nil, exitOther, "ctrl-p,ctrl-q"},
		{"logs of no sandbox", []string{"logs", "nosuch"}, nil, exitSandbox, "msb ls"},
		{"logs of a console that is followed", []string{"logs", "-f", "--console", "web"}, nil, exitOther, "tail -F"},
		{"a copy without a path", []string{"cp", "web:", "."}, nil, exitOther, "web:/PATH"},
		{"a copy within this machine", []string{"cp", "a", "b"}, nil, exitOther, "NAME:PATH"},
		{"a URL to allow", []string{"run", "--allow", "https://api.example.com/x", "--", "true"}, nil, exitOther, "write HOST:PORT"},
		{"no policy to check", []string{"policy", "check"}, nil, exitOther, "name the policy file"},
		{"one policy to compare", []string{"policy", "diff", "a"}, nil, exitOther, "name two policies"},
		{"-it without a terminal", []string{"exec", "nosuch", "-it", "sh"}, nil, exitOther, "flags go before"},
		{"a command for an image", []string{"run", "--pull", "never", "uname"}, nil, exitImageUnknown, "msb run -- uname"},
		{"capture the wrong way round", []string{"capture", "on", "web"}, nil, exitOther, "msb capture web on"},
		{"no such policy command", []string{"policy", "chek", good}, nil, exitOther, "did you mean check?"},
		{"no such image command", []string{"image", "nosuch"}, nil, exitOther, `"nosuch"`},
		{"no such shell to complete for", []string{"completion", "bsh"}, nil, exitOther, "did you mean bash?"},
		{"an image that is not in the cache", []string{"image", "rm", "nosuch"}, nil, exitImageUnknown, "msb image ls"},
		{"a preset for a policy file", []string{"run", "--policy", "pypi"}, nil, exitPolicyMissing, `include = ["pypi"]`},
		{"a method in lower case", []string{"policy", "explain", good, "--to", "a.example:443", "--method", "post"}, nil, exitOther, "write POST"},
		{"a path without its slash", []string{"policy", "explain", good, "--to", "a.example:443", "--path", "x/y"}, nil, exitOther, "such as /x/y"},
		{"dns of an address in a browser's form", []string{"dns", "https://a.example/", "--policy", good}, nil, exitOther, "the name alone"},
		{"bad --allow", []string{"run", "--allow", "https://x"}, nil, exitOther, "--allow"},
		{"bad --memory", []string{"run", "-m", "many"}, nil, exitOther, "--memory"},
		{"too many CPUs", []string{"run", "--cpus", "10000"}, nil, exitOther, "CPUs"},
		{"too little memory", []string{"run", "-m", "1M"}, nil, exitOther, "1MB of memory; give it 96M to 512G"},
		{"image reference", []string{"run", "UPPER/case:::"}, nil, exitImageUnknown, "UPPER"},
		{"image directory missing", []string{"run", "dir:/nosuch"}, nil, exitImageUnknown, "/nosuch"},
		{"image not cached", []string{"run", "--pull", "never", "localhost:1/none"}, nil, exitImageUnknown, "localhost:1/none"},
		{"registry refuses", []string{"run", "127.0.0.1:1/none"}, nil, exitImageUnknown, "127.0.0.1:1"},
		{"a directory without dir:", []string{"run", "./debroot"}, nil, exitImageUnknown, "dir:./debroot"},
		{"a path of a command for an image", []string{"run", "/bin/ls"}, nil, exitImageUnknown, `behind "--"`},
		{"--no-net with --allow", []string{"run", "--no-net", "--allow", "a.example:443"}, nil, exitOther, "--no-net"},
		{"--no-net with --pcap", []string{"create", "--no-net", "--pcap", "x.pcapng", "web"}, nil, exitOther, "--no-net"},
		{"MSB_HOME at a file", []string{"run"}, []string{"MSB_HOME=" + good}, exitOther, "is a file"},
		{"no such backend", []string{"run", "--vm", "bogus"}, nil, exitOther, "bogus"},
		{"no such policy", []string{"policy", "show", "nosuch"}, nil, exitPolicyMissing, "msb: policy file can't be read: there is no file, sandbox or preset \"nosuch\"; `msb ls`"},
		{"a slip in a preset", []string{"policy", "show", "pipy"}, nil, exitPolicyMissing, "did you mean pypi?"},
		{"a slip in a preset to print", []string{"policy", "presets", "pipy"}, nil, exitPolicyMissing, "did you mean \"pypi\"?"},
		{"a slip in an image", []string{"run", "--pull", "never", "biultin"}, nil, exitImageUnknown, "did you mean builtin?"},
		{"a slip in an image to remove", []string{"image", "rm", "bultin"}, nil, exitImageUnknown, "did you mean builtin?"},
		{"no such floor", []string{"run", "--floor", "nosuch"}, nil, exitPolicyMissing, "msb: policy file can't be read: open nosuch: "},
		{"a variable that isn't set", []string{"create", "-e", "MSB_NO_SUCH", "--vm", "qemu", "--policy", "nosuch.toml", "web"}, nil, exitPolicyMissing, "-e MSB_NO_SUCH: there is no such variable"},
		{"no backend", []string{"run"}, []string{"MSB_LIBDIR=/nosuch", "PATH=/nosuch"}, exitNoBackend, "msb doctor"},
		{"state directory", []string{"run"}, []string{"MSB_HOME=/proc/nosuch"}, exitOther, "MSB_HOME"},
		{"state directory that is a file", []string{"run", "--pull", "never"}, []string{"MSB_HOME=" + good}, exitOther, "is a file"},
		{"state directory below a file", []string{"create", "web"}, []string{"MSB_HOME=" + good + "/home"}, exitOther, "is a file"},
		{"state directory that is a file, for images", []string{"image", "ls"}, []string{"MSB_HOME=" + good}, exitOther, "is a file"},
		{"state directory of the user's own", []string{"ls"}, []string{"MSB_HOME=" + filepath.Dir(good)}, exitOther, "set MSB_HOME to an empty directory"},
		{"explain without port", []string{"policy", "explain", good, "--to", "example.com"}, nil, exitOther, "HOST:PORT"},
		{"gateway link", []string{"gateway", "--policy", good, "--listen", "unix:///tmp/x", "--link", "x"}, nil, exitOther, "--link"},
		{"gateway listen", []string{"gateway", "--policy", good, "--listen", "tcp:80"}, nil, exitOther, "--listen"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := msb(t, tt.env, tt.args...)
			if got.code != tt.code || !strings.Contains(got.err, tt.say) || got.out != "" && tt.args[0] != "policy" {
				t.Errorf("exit %d, said %q and printed %q; want %d and %q", got.code, got.err, got.out, tt.code, tt.say)
			}
			if strings.Contains(got.err, "goroutine ") {
				t.Errorf("a stack trace: %s", got.err)
			}
		})
	}
}

// TestUnsetVariablesAreReportedOnce on standard error, but with -q.
func TestUnsetVariablesAreReportedOnce(t *testing.T) {
	for quiet, want := range map[bool]int{false: 1, true: 0} {
		var err strings.Builder
		ui := newUI(os.Stdout, &err)
		ui.quiet = quiet
		(&runFlags{env: []string{"MSB_NO_SUCH", "A=b", "PATH", "B="}}).noteUnset(ui)
		if n := strings.Count(err.String(), "no such variable"); n != want {
			t.Errorf("quiet %t: %q", quiet, err.String())
		}
	}
}

func TestExplainNamesEachVerdict(t *testing.T) {
	path := write(t, "p.toml", policyText)
	tests := []struct {
		args   []string
		code   int
		action string
	}{
		{[]string{"--to", "api.example.com:443"}, 0, "inspect"},
		{[]string{"--to", "api.example.com:443", "--method", "GET", "--path", "/"}, 0, "inspect"},
		{[]string{"--to", "api.example.com:443", "--method", "POST", "--path", "/"}, exitDenied, "deny"},
		{[]string{"--to", "10.0.0.1:443"}, exitDenied, "deny"},
		{[]string{"--to", "example.com:443/udp"}, exitDenied, "deny"},
	}
	for _, tt := range tests {
		got := msb(t, nil, append([]string{"policy", "explain", path, "--json"}, tt.args...)...)
		var answer struct{ Action, Reason, Message string }
		if err := json.Unmarshal([]byte(got.out), &answer); err != nil {
			t.Fatalf("%v: %v in %q, %q", tt.args, err, got.out, got.err)
		}
		if got.code != tt.code || answer.Action != tt.action || answer.Reason == "" || answer.Message == "" {
			t.Errorf("%v: exit %d, %+v; want %d, %s", tt.args, got.code, answer, tt.code, tt.action)
		}
	}
}

func TestPolicyShowIsItselfAPolicy(t *testing.T) {
	path := write(t, "p.toml", "version = 1\ninclude = [\"pypi\"]\n")
	shown := msb(t, nil, "policy", "show", path)
	if shown.code != 0 || !strings.Contains(shown.out, "pypi.org") {
		t.Fatalf("%+v", shown)
	}
	again := write(t, "again.toml", shown.out)
	if got := msb(t, nil, "policy", "diff", path, again); got.code != 0 || !strings.Contains(got.out, "the same") {
		t.Errorf("what show printed lets out something else: %+v", got)
	}
}

func TestPolicyDiffSaysWhatDiffers(t *testing.T) {
	const token = "version = 1\n[[egress.allow]]\nname = \"api\"\nhosts = [\"api.example.com\"]\n[secrets.TOKEN]\nfrom = \"command:touch MARK\"\nhosts = [\"api.example.com\"]\nin = [\"basic\"]\n"
	ran := filepath.Join(t.TempDir(), "ran")
	text := strings.Replace(token, "MARK", ran, 1)
	a := write(t, "a.toml", text)
	floor := write(t, "floor.toml", text+"[limits]\ndns_per_second = 50\n")
	for _, tt := range []struct {
		name, b string
		args    []string
		code    int
		say     []string
	}{
		{"itself", text, nil, 0, []string{"the same"}},
		{"other spelling", "# spelled otherwise\n" + text, nil, 0, []string{"the same"}},
		{"hosts", text + "[hosts]\n\"x.internal\" = \"127.0.0.1:80\"\n", nil, exitDiffers, []string{"opens", "x.internal:1-65535", "127.0.0.1:80"}},
		{"via", text + "[tls]\nvia = \"http://192.0.2.1:3128\"\n", nil, exitDiffers, []string{"tls.via", "none → http://192.0.2.1:3128"}},
		{"limit", text + "[limits]\ndns_per_second = 100\n", nil, exitDiffers, []string{"limits.dns_per_second", "200 → 100"}},
		{"limit above the floor's", text + "[limits]\ndns_per_second = 100\n", []string{"--floor", floor}, 0, []string{"the same"}},
		{"limit below the floor's", text + "[limits]\ndns_per_second = 10\n", []string{"--floor", floor}, exitDiffers, []string{"50 → 10"}},
		{"violation", text + "on_violation = \"terminate\"\n", nil, exitDiffers, []string{"secrets.TOKEN.on_violation", "block → terminate"}},
		{"source", strings.Replace(text, "command:touch "+ran, "env:TOKEN", 1), nil, exitDiffers, []string{"secrets.TOKEN.from", "→ env:TOKEN"}},
	} {
		b := write(t, "b.toml", tt.b)
		for _, form := range []string{"", "--json"} {
			args := append([]string{"policy", "diff", a, b}, tt.args...)
			if form != "" {
				args = append(args, form)
			}
			got := msb(t, nil, args...)
			if got.code != tt.code {
				t.Errorf("%s: exit %d, %s%s; want %d", tt.name, got.code, got.out, got.err, tt.code)
			}
			for _, say := range tt.say {
				if form == "" && !strings.Contains(got.out, say) {
					t.Errorf("%s: printed\n%s without %q", tt.name, got.out, say)
				}
			}
			var found struct{ Flows, Keys []json.RawMessage }
			if form != "" && (json.Unmarshal([]byte(got.out), &found) != nil || (got.code == 0) != (len(found.Flows)+len(found.Keys) == 0)) {
				t.Errorf("%s: exit %d and %s", tt.name, got.code, got.out)
			}
		}
	}
	for _, verb := range [][]string{{"check", a}, {"explain", a, "--to", "api.example.com:443"}, {"show", a}} {
		if got := msb(t, nil, append([]string{"policy"}, verb...)...); got.code != 0 {
			t.Errorf("%v: %+v", verb, got)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a secret's command was run")
	}
}

// TestI6_PolicyVerbsAgreeOnInsideNames asks check, explain, dns and diff about names that stay inside.
func TestI6_PolicyVerbsAgreeOnInsideNames(t *testing.T) {
	const public = "version = 1\n[egress]\ndefault = \"public\"\n"
	rule := func(host string) string { return "[[egress.allow]]\nhosts = [\"" + host + "\"]\n" }
	for _, tt := range []struct {
		host, name    string
		never, public bool // never resolved; let out by "public" alone
	}{
		{"1.168.192.in-addr.arpa", "1.168.192.in-addr.arpa", true, false},
		{"*.168.192.in-addr.arpa", "7.168.192.in-addr.arpa", true, false},
		{"0-63.1.168.192.in-addr.arpa", "0-63.1.168.192.in-addr.arpa", true, false},
		{"08.8.in-addr.arpa", "08.8.in-addr.arpa", true, false},
		{"*.d.f.ip6.arpa", "1.d.f.ip6.arpa", true, false},
		{"*.local", "printer.local", true, false},
		{"8.8.8.8.in-addr.arpa", "8.8.8.8.in-addr.arpa", false, true},
		{"*.8.in-addr.arpa", "8.8.8.8.in-addr.arpa", false, true},
		{"*.ip6.arpa", "2.ip6.arpa", false, true},
		{"printer.corp", "printer.corp", false, false},
		{"*.internal", "db.internal", false, false},
		{"*.home.arpa", "nas.home.arpa", false, false},
		{"*", "printer.corp", false, false},
		{"api.example.com", "api.example.com", false, true},
	} {
		open := write(t, "public.toml", public)
		ruled := write(t, "rule.toml", public+rule(tt.host))
		check := msb(t, nil, "policy", "check", ruled)
		if want := map[bool]int{true: exitPolicyInvalid}[tt.never]; check.code != want || tt.never && !strings.Contains(check.err, "rule.toml:4:") {
			t.Errorf("check of a rule for %s: %+v, want exit code %d and its place", tt.host, check, want)
		}
		named := !tt.never && tt.host != "*"
		for _, file := range []struct {
			path string
			want bool
		}{{open, tt.public}, {ruled, named || tt.public}} {
			want := map[bool]int{false: exitDenied}[file.want]
			if got := msb(t, nil, "policy", "explain", file.path, "--to", tt.name+":443"); got.code != want {
				t.Errorf("explain %s, %s: %+v, want exit code %d", filepath.Base(file.path), tt.name, got, want)
			}
			if !file.want { // else the question would leave
				if got := msb(t, nil, "dns", tt.name, "--policy", file.path); got.code != exitDenied {
					t.Errorf("dns %s, %s: %+v", filepath.Base(file.path), tt.name, got)
				}
			}
		}
		diff := msb(t, nil, "policy", "diff", open, ruled)
		opens := regexp.MustCompile(`(?m)^opens +` + regexp.QuoteMeta(tt.host)).MatchString(diff.out)
		if diff.code != exitDiffers || opens != (named && !tt.public) {
			t.Errorf("diff of a rule for %s: exit code %d\n%s", tt.host, diff.code, diff.out)
		}
	}
}

func TestPolicyShowTakesNamesToo(t *testing.T) {
	env := []string{"MSB_HOME=" + filepath.Join(t.TempDir(), "home")}
	path := write(t, "p.toml", policyText)
	floor := write(t, "floor.toml", "version = 1\n[[egress.allow]]\nhosts = [\"api.example.com\"]\nprotocol = \"https\"\npaths = [\"/floor/**\"]\n")
	for name, args := range map[string][]string{"web": {"--policy", path}, "under": {"--policy", path, "--floor", floor}, "flags": {"--allow", "other.example:8443"}} {
		if got := msb(t, env, append(append([]string{"create", "-q", "--disk", "64M"}, args...), name)...); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	for name, want := range map[string]string{"web": `name = "api"`, "under": "/floor/", "flags": "other.example", "pypi": "files.pythonhosted.org"} {
		if got := msb(t, env, "policy", "show", name); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
	if got := msb(t, env, "policy", "show", "nosuch"); got.code != exitPolicyMissing || !strings.Contains(got.err, "nosuch") {
		t.Errorf("%+v", got)
	}
}

func TestDoctorSaysWhatIsMissing(t *testing.T) {
	got := msb(t, []string{"MSB_LIBDIR=/nosuch", "PATH=/nosuch"}, "doctor", "--json")
	var d diagnosis
	if err := json.Unmarshal([]byte(got.out), &d); err != nil {
		t.Fatalf("%v in %q", err, got.out)
	}
	if got.code != exitDoctor || d.Usable {
		t.Errorf("exit %d, usable %v; want 1, false", got.code, d.Usable)
	}
	for _, f := range d.Findings {
		if !f.OK && f.Remedy == "" {
			t.Errorf("%s is missing (%s) and has no remedy", f.Name, f.Detail)
		}
	}
	if human := msb(t, []string{"MSB_LIBDIR=/nosuch", "PATH=/nosuch"}, "doctor"); !strings.Contains(human.out, "MISSING") || !strings.Contains(human.out, "can't run here") {
		t.Errorf("for people: %s", human.out)
	}
}

func TestDNSShowsTheGuestsAnswer(t *testing.T) {
	path := write(t, "p.toml", "version = 1\n[hosts]\n\"a.internal.example\" = \"127.0.0.1:1\"\n")
	if got := msb(t, nil, "dns", "a.internal.example", "--trust", "--policy", path); got.code != 0 || !strings.Contains(got.out, "198.18.") || !strings.Contains(got.out, "hosts.a.internal.example") || !strings.Contains(got.out, "for 60 s") {
		t.Errorf("mapped name: %+v, want its address, for how long, and why", got)
	}
	if got := msb(t, nil, "dns", "example.com", "--trust", "--policy", path); got.code != exitDenied || !strings.Contains(got.out, "no allow rule") || !strings.Contains(got.out, "Prohibited") {
		t.Errorf("a name that no rule allows: %+v", got)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	root := newRoot(newUI(io.Discard, io.Discard))
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Name() == "help" || c.Name() == "completion" {
			return
		}
		if c.Runnable() && !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, below := range c.Commands() {
			look(below)
		}
	}
	look(root)
}
