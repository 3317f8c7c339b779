package pcapgen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Case is one capture.
type Case struct {
	// Name is the file's, without its ending.
	Name string
	// Title says in a sentence what happens. The capture carries it as its own comment, which Wireshark
	// shows; where it is empty, the story.
	Title string
	// Story says in a paragraph what happens and why it matters.
	Story string
	// Policy is what it is judged under, in TOML without the version.
	Policy string
	// Odd says that it is malformed on purpose, so that tools may complain.
	Odd bool
	// Timed says that time or a changing zone is part of the story, so that a quick replay comes out
	// otherwise than the capture.
	Timed bool
	// Opens are addresses that aren't public and that the policy opens, so that they may be dialled.
	Opens []string
	// Script is what the shell of a real guest ran; empty for a case that is generated.
	Script string
	// Zone are the records that the world's resolver had when a case was recorded.
	Zone []string
	// Spoken says that a script of review's tests speaks the case, and recorded it. GuestPort is the first
	// port that its guest connects from.
	Spoken    bool
	GuestPort uint16

	build func(*tape)
}

// Capture is a generated case as a pcapng file, with the records that the world's resolver has in it.
func (c *Case) Capture() (file []byte, zone []string) {
	t := newTape(cmp.Or(c.Title, c.Story))
	c.build(t)
	for _, lines := range t.zone {
		zone = append(zone, lines...)
	}
	slices.Sort(zone)
	return t.bytes(), slices.Compact(zone)
}

// Stored reports whether the capture was recorded, so that only its file has it.
func (c *Case) Stored() bool { return c.Script != "" || c.Spoken }

// File is the policy as it is committed beside the capture: the story is its comment.
func (c *Case) File() string {
	return "# " + strings.Join(wrap(c.Story, 98), "\n# ") + "\nversion = 1\n" + strings.TrimLeft(c.Policy, "\n")
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// Cases are the captures that are generated, in the order of their names.
func Cases() []Case {
	all := slices.Concat(ordinary(), addresses(), literalCases(), lookups(), answerCases(), tlsCases(), httpCases(),
		framingCases(), upgradeCases(), linkCases(), networkCases(), transportCases())
	slices.SortFunc(all, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(all); i++ {
		if all[i].Name == all[i-1].Name {
			panic(fmt.Sprintf("two cases are called %s", all[i].Name))
		}
	}
	return all
}

// Policies that many cases share.
const (
	nothing = `
# nothing is allowed
`
	webOnly = `
[[egress.allow]]
name = "web"
hosts = ["good.example", "*.good.example"]
ports = [80, 443]
protocol = "tls"
`
	inspected = `
[[egress.allow]]
name = "api"
hosts = ["good.example"]
ports = [443]
protocol = "https"
methods = ["GET"]
paths = ["/repos/**"]
` + inClear
	inClear = `
[[egress.allow]]
name = "api in clear"
hosts = ["good.example"]
ports = [80]
protocol = "http"
methods = ["GET"]
paths = ["/repos/**"]
`
	everything = `
[egress]
default = "public"
`
)

// The world's addresses.
const (
	good  = "93.184.215.14"
	good6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
	evil  = "45.33.32.156"
	// explicitProxy is where the gateway takes requests as an HTTP proxy.
	explicitProxy = "192.168.127.1:3128"
)
