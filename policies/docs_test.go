package policies

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// Every TOML example of the documentation is a policy, but for version = 1,
// which the page says is left out.
func TestExamplesOfTheDocumentationParse(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(examples) < 8 {
		t.Fatalf("%d examples found", len(examples))
	}
	open := func(string) ([]byte, error) { return []byte("version = 1\n"), nil }
	for _, e := range examples {
		text := e[1]
		if !strings.Contains(text, "version") {
			text = "version = 1\n" + text
		}
		p, err := Parse("policy.md", []byte(text), open)
		if err != nil {
			t.Errorf("%v\nin\n%s", err, text)
			continue
		}
		again(t, p)
	}
}

// Every key of the file, every value of an enum and every preset is in the
// documentation, and every key has a sentence for the schema.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := func(word string) {
		if !strings.Contains(string(page), "`"+word+"`") && !strings.Contains(string(page), "`\""+word+"\"`") && !strings.Contains(string(page), "`["+word) {
			t.Errorf("docs/policy.md doesn't mention `%s`", word)
		}
	}
	var visit func(reflect.Type)
	visit = func(ty reflect.Type) {
		switch ty.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(ty.Elem())
		case reflect.Struct:
			for i := range ty.NumField() {
				f := ty.Field(i)
				documented(f.Tag.Get("toml"))
				if !strings.HasSuffix(f.Tag.Get("doc"), ".") {
					t.Errorf("%s.%s has no sentence", ty, f.Name)
				}
				for v := range strings.FieldsSeq(f.Tag.Get("of")) {
					documented(v)
				}
				visit(f.Type)
			}
		default:
		}
	}
	visit(reflect.TypeFor[fileDoc]())
	for _, name := range Presets() {
		documented(name)
	}
}

// The enums of the schema are those that the package reads.
func TestSchemaEnumsAreComplete(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of    any
		field string
		want  enum
	}{
		{fileEgress{}, "Default", defaultActions}, {fileEgress{}, "Mode", modes}, {fileRule{}, "Protocol", protocols},
		{fileTLS{}, "Inspect", inspects}, {fileSecret{}, "OnViolation", violations}, {fileAgent{}, "Approve", approvals}, {fileSecret{}, "Kind", enum{SigV4}},
	} {
		f, _ := reflect.TypeOf(c.of).FieldByName(c.field)
		if got := strings.Fields(f.Tag.Get("of")); !reflect.DeepEqual(got, []string(c.want)) {
			t.Errorf("%s: the schema has %v, the package reads %v", c.field, got, c.want)
		}
	}
}
