package policies

import (
	"strings"
	"testing"
)

func TestAgentNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	const secret = "[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.TOKEN]\nfrom = \"env:T\"\nhosts = [\"a.example\"]\nin = [\"header:Authorization\"]\n"
	for agent, want := range map[string]string{
		`secrets = ["TOKEN"]`:                            "",
		`secrets = []`:                                   "",
		`secrets = ["TOKN"]`:                             `f.toml:9:12: agent.secrets[0]: there is no secret "TOKN"; did you mean "TOKEN"? there are: TOKEN`,
		`tools = ["all"]`:                                "",
		`tools = ["images", "fil"]`:                      `agent.tools[1]: there is no toolset "fil"; did you mean "files"?`,
		`images = ["python:3.12", "oci:dir", "builtin"]`: "",
		`images = ["Python:3.12"]`:                       `agent.images[0]: invalid image reference: "Python:3.12"`,
		`images = ["Py:::3"]`:                            `agent.images[0]: invalid image reference: "Py:::3"`,
	} {
		_, err := Parse("f.toml", []byte("version = 1\n"+secret+"[agent]\n"+agent+"\n"), nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", agent, err, want)
		}
	}
	_, err := Parse("f.toml", []byte("version = 1\n[agent]\nimages = [\"Python:3\"]\n"), nil)
	if err == nil || !strings.Contains(err.Error(), `did you mean "python:3"?`) {
		t.Error(err)
	}
	if _, err := Parse("f.toml", []byte("version = 1\n[agent]\nsecrets = [\"X\"]\n"), nil); err == nil || !strings.Contains(err.Error(), "there are: none") {
		t.Error(err)
	}
}
