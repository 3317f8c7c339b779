package main

import (
	"strings"
	"testing"
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
		"touch a":                    `unknown command "touch": use msb keep`,
		"branch a b":                 `unknown command "branch": use msb clone`,
		"commit -m text a b":         "leave it out",
		"commit -c CMD=x a b":        "msb run has flags for others",
		"top a -o pid":               "msb exec NAME ps",
		"ls -a":                      "running or not; leave it out",
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
	if got := msb(t, nil, "help", "policy", "check"); got.code != 0 || !strings.Contains(got.out, "msb policy check FILE") {
		t.Errorf("msb help policy check: %+v", got)
	}
	if got := msb(t, nil, "ls", "--format", "json"); got.code != 0 || got.out != "[]\n" {
		t.Errorf("msb ls --format json: %+v", got)
	}
	if got := msb(t, nil, "run", "--help"); strings.Contains(got.out, "[]") {
		t.Errorf("an empty default in the help: %s", got.out)
	}
}

// TestForeignFlagsAreForeign: a remedy for a flag that msb has by now would never be shown.
func TestForeignFlagsAreForeign(t *testing.T) {
	t.Parallel()
	root := newRoot(newUI(nil, nil))
	for verb, flags := range verbFlags {
		path := []string{verb}
		if verb == "pull" || verb == "prune" {
			path = []string{"image", verb}
		}
		c, _, err := root.Find(path)
		if err != nil || c.Name() != verb {
			t.Fatalf("%s: %v", verb, err)
		}
		for name := range flags {
			if c.Flags().Lookup(name) != nil || len(name) == 1 && c.Flags().ShorthandLookup(name) != nil {
				t.Errorf("msb %s has the flag %s", verb, name)
			}
		}
	}
	for name := range otherFlags {
		for _, verb := range []string{"run", "create", "exec"} {
			c, _, err := root.Find([]string{verb})
			if err != nil {
				t.Fatal(err)
			}
			if len(name) > 1 && c.Flags().Lookup(name) != nil || len(name) == 1 && c.Flags().ShorthandLookup(name) != nil {
				t.Errorf("msb %s has the flag %s", verb, name)
			}
		}
	}
	for word := range otherWords {
		if c, rest, _ := root.Find([]string{word}); c != root || len(rest) == 0 {
			t.Errorf("msb has the command %s", word)
		}
	}
}
