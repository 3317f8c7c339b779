package supervisor

import (
	"os"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI15_VariablesNameNoGuestWritableDirectory has a secret's command ask for variables of the caller's. Those that
// name a directory that the guest may write to are unset; where the guest may only read it, they stay. It is not
// parallel: variables are the process's.
func TestI15_VariablesNameNoGuestWritableDirectory(t *testing.T) {
	const policy = "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.TOKEN]\nfrom = \"command:printenv PLANTED\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n" +
		"[secrets.OTHER]\nfrom = \"env:VALUE\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
	shared := t.TempDir()
	for _, tt := range []struct {
		name, value string
		writable    bool
		gone        bool
		cow         bool
	}{
		{"a path in it", shared + "/lib", true, true, false},
		{"one of a list", "/usr/lib:" + shared, true, true, false},
		{"behind a flag", "-I" + shared + "/x", true, true, false},
		{"a path elsewhere", "/usr/lib/elsewhere", true, false, false},
		{"read-only", shared + "/lib", false, false, false},
		{"a copy that may be written back", shared + "/lib", false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PLANTED", tt.value)
			t.Setenv("VALUE", shared+"/is-a-secret") // is read, and no command has it
			p := newPlan(t, t.TempDir(), "")
			p.Policy, p.NoNet = policy, false
			p.Directories = []policies.Directory{{Host: shared, Guest: "/work", Writable: tt.writable, CopyOnWrite: tt.cow}}
			t.Setenv("FLOORS", shared+"/is-the-floors") // likewise
			t.Setenv("PATH", os.Getenv("PATH")+":"+shared+"/bin")
			p.Floor = policy + "[secrets.SECOND]\nfrom = \"env:FLOORS\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
			s, _ := superviseFake(t, &guestVM{}, p)
			err := <-s.ended // where the command has its variable, the guest without directories is what fails
			if err == nil || strings.Contains(err.Error(), "printenv") != tt.gone {
				t.Errorf("the start ended with %v", err)
			}
			if _, there := os.LookupEnv("VALUE"); !there {
				t.Error("the variable of a secret is gone")
			}
			if _, there := os.LookupEnv("FLOORS"); !there {
				t.Error("the variable of a secret of the floor is gone")
			}
			if os.Getenv("PATH") == "" {
				t.Error("commands are found nowhere")
			}
		})
	}
}
