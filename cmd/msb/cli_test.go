package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

const policyText = `version = 1
[[egress.allow]]
name = "api"
hosts = ["api.example.com"]
protocol = "https"
methods = ["GET"]
`

func TestI12_BadInputIsNamedWithItsOwnExitCode(t *testing.T) {
	good := write(t, "good.toml", policyText)
	bad := write(t, "bad.toml", "version = 1\n[egress]\ndefault = \"sure\"\n")
	roots := write(t, "roots.toml", policyText+"[[tls.extra_ca]]\nhosts = [\"api.example.com\"]\nfile = \"/nosuch.pem\"\n")
	floor := write(t, "floor.toml", "version = 1\n[[egress.allow]]\nhosts = [\"other.example.com\"]\n")
	asks := write(t, "asks.toml", "version = 1\n[hosts]\n\"internal.example\" = \"127.0.0.1:80\"\n")
	command := write(t, "command.toml", "version = 1\n[sandbox]\ncommand = [\"sleep\", \"5\"]\n")
	tests := []struct {
		name string
		args []string
		env  []string
		code int
		say  string
	}{
		{"policy missing", []string{"run", "-p", "nosuch.toml"}, nil, exitPolicyMissing, "nosuch.toml"},
		{"policy wrong", []string{"run", "-p", bad}, nil, exitPolicyInvalid, "bad.toml:3:"},
		{"policy check", []string{"policy", "check", good, bad}, nil, exitPolicyInvalid, "bad.toml:3:"},
		{"policy check of a file of roots that is missing", []string{"policy", "check", roots}, nil, exitOther, "nosuch.pem"},
		{"policy check under a floor that forbids", []string{"policy", "check", "--floor", floor, asks}, nil, exitPolicyInvalid, "internal.example"},
		{"policy explain under a floor", []string{"policy", "explain", "--floor", floor, good, "--to", "api.example.com:443", "--json"}, nil, exitDenied, ""},
		{"sandbox name", []string{"create", "../x"}, nil, exitSandbox, "lower-case letters"},
		{"no such sandbox", []string{"exec", "nosuch", "true"}, nil, exitSandbox, "msb ls"},
		{"exec without a command", []string{"exec", "nosuch"}, nil, exitOther, "name the command"},
		{"detach without a name", []string{"run", "-d"}, nil, exitOther, "give it a name"},
		{"detach with a command for an image", []string{"run", "-d", "--name", "web", "-p", good, "alpine", "--", "sleep", "1 h"}, nil, exitOther, "`msb exec web -- sleep '1 h'`"},
		{"detach with a command without dashes", []string{"run", "-d", "--name", "web", "alpine", "sleep", "1"}, nil, exitOther, "`msb exec web -- sleep 1`"},
		{"detach with a command for the built-in image", []string{"run", "--detach", "--name=web", "-q", "--", "it's"}, nil, exitOther, `leave it out of this line, then run ` + "`msb exec web -- 'it'\\''s'`"},
		{"detach with a command beside the policy's", []string{"run", "-d", "--name", "web", "-p", command, "--", "true"}, nil, exitOther, "`msb exec web -- true`"},
		{"detach with the policy's command", []string{"run", "-d", "--name", "web", "-p", command}, nil, exitOther, "`msb exec web -- sleep 5`"},
		{"no such flag", []string{"run", "--bogus"}, nil, exitOther, "msb run --help"},
		{"no such command", []string{"bogus"}, nil, exitOther, "unknown command"},
		{"no such command, but one nearly", []string{"inspec"}, nil, exitOther, "did you mean inspect?"},
		{"another tool's command", []string{"cp", "a", "b"}, nil, exitOther, "tar"},
		{"-it without a terminal", []string{"exec", "nosuch", "-it", "sh"}, nil, exitOther, "flags go before"},
		{"a command for an image", []string{"run", "--pull", "never", "uname"}, nil, exitImageUnknown, "msb run -- uname"},
		{"capture the wrong way round", []string{"capture", "on", "web"}, nil, exitOther, "msb capture web on"},
		{"no such policy command", []string{"policy", "chek", good}, nil, exitOther, "did you mean check?"},
		{"no such image command", []string{"image", "nosuch"}, nil, exitOther, `"nosuch"`},
		{"dns of an address in a browser's form", []string{"dns", "https://a.example/", "-p", good}, nil, exitOther, "the name alone"},
		{"bad --allow", []string{"run", "--allow", "https://x"}, nil, exitOther, "--allow"},
		{"bad --memory", []string{"run", "-m", "many"}, nil, exitOther, "--memory"},
		{"too many CPUs", []string{"run", "--cpus", "10000"}, nil, exitOther, "CPUs"},
		{"too little memory", []string{"run", "-m", "1M"}, nil, exitOther, "MiB of memory"},
		{"image reference", []string{"run", "UPPER/case:::"}, nil, exitImageUnknown, "UPPER"},
		{"image folder missing", []string{"run", "dir:/nosuch"}, nil, exitImageUnknown, "/nosuch"},
		{"image not cached", []string{"run", "--pull", "never", "localhost:1/none"}, nil, exitImageUnknown, "localhost:1/none"},
		{"registry refuses", []string{"run", "127.0.0.1:1/none"}, nil, exitImageUnknown, "127.0.0.1:1"},
		{"a directory without dir:", []string{"run", "./debroot"}, nil, exitImageUnknown, "dir:./debroot"},
		{"a path of a command for an image", []string{"run", "/bin/ls"}, nil, exitImageUnknown, `behind "--"`},
		{"--no-net with --allow", []string{"run", "--no-net", "--allow", "a.example:443"}, nil, exitOther, "--no-net"},
		{"--no-net with --pcap", []string{"create", "--no-net", "--pcap", "x.pcapng", "web"}, nil, exitOther, "--no-net"},
		{"MSB_HOME at a file", []string{"run"}, []string{"MSB_HOME=" + good}, exitOther, "is a file"},
		{"no such backend", []string{"run", "--vm", "bogus"}, nil, exitNoBackend, "bogus"},
		{"no backend", []string{"run"}, []string{"MSB_LIBDIR=/nosuch", "PATH=/nosuch"}, exitNoBackend, "msb doctor"},
		{"state folder", []string{"run"}, []string{"MSB_HOME=/proc/nosuch"}, exitOther, "MSB_HOME"},
		{"state directory that is a file", []string{"run", "--pull", "never"}, []string{"MSB_HOME=" + good}, exitOther, "is a file"},
		{"state directory below a file", []string{"create", "web"}, []string{"MSB_HOME=" + good + "/home"}, exitOther, "is a file"},
		{"state directory that is a file, for images", []string{"image", "ls"}, []string{"MSB_HOME=" + good}, exitOther, "is a file"},
		{"state directory of the user's own", []string{"ls"}, []string{"MSB_HOME=" + filepath.Dir(good)}, exitOther, "set MSB_HOME to an empty directory"},
		{"explain without port", []string{"policy", "explain", good, "--to", "example.com"}, nil, exitOther, "HOST:PORT"},
		{"gateway link", []string{"gateway", "-p", good, "--listen", "unix:///tmp/x", "--link", "x"}, nil, exitOther, "--link"},
		{"gateway listen", []string{"gateway", "-p", good, "--listen", "tcp:80"}, nil, exitOther, "--listen"},
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

func TestPolicyExplainSaysAllowInspectAndDeny(t *testing.T) {
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

func TestDNSShowsWhatAGuestIsTold(t *testing.T) {
	path := write(t, "p.toml", "version = 1\n[hosts]\n\"a.internal.example\" = \"127.0.0.1:1\"\n")
	if got := msb(t, nil, "dns", "a.internal.example", "-p", path); got.code != 0 || !strings.Contains(got.out, "198.18.") || !strings.Contains(got.out, "hosts.a.internal.example") || !strings.Contains(got.out, "for 60 s") {
		t.Errorf("mapped name: %+v, want its address, for how long, and why", got)
	}
	if got := msb(t, nil, "dns", "example.com", "-p", path); got.code != exitDenied || !strings.Contains(got.out, "no allow rule") || !strings.Contains(got.out, "Prohibited") {
		t.Errorf("a name that no rule allows: %+v", got)
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	for _, c := range []string{"run", "doctor", "policy", "gateway", "dns"} {
		got := msb(t, nil, c, "--help")
		if got.code != 0 || !strings.Contains(got.out, "Usage:") {
			t.Errorf("%s: %+v", c, got)
		}
	}
}
