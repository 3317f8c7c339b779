package policies

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/msb-project/msb/image"
)

// Agent says what an agent may have of this machine by way of `msb mcp --policy FILE`, and bounds what its sandboxes
// take. Zero bounds are the server's defaults. No other command reads it.
type Agent struct {
	// Images may be pulled, beside that of [sandbox].
	Images []string
	// Directories are seen by every sandbox.
	Directories []Directory
	// Secrets are the names of those that sandboxes get.
	Secrets []string
	// Tools are toolsets beside the default tools.
	Tools []string
	// MayRequest are the hosts that an agent may ask a person for, by https. nil is every name at port 443, empty is none.
	MayRequest []SecretHost
	// Approve says where a person answers what an agent asks for.
	Approve Approve
	// Sandboxes bounds how many there are at once; the others are of one sandbox, sizes in bytes.
	Sandboxes, CPUs int
	Memory, Disk    int64
	// IdleStop stops a sandbox that nobody uses, Lifetime any.
	IdleStop, Lifetime time.Duration
	// Children is nil for none.
	Children *ChildBudget
}

// ChildBudget bounds the children of one sandbox, with those of its children: sandboxes that it may have made, each of
// which may do no more than its parent.
type ChildBudget struct {
	// Count is of those at once, Total of those in the sandbox's life. Depth is of generations, 1 for children that have
	// none.
	Count int `json:"count"`
	Total int `json:"total"`
	Depth int `json:"depth"`
	// CPUs and Memory, in bytes, are of those at once together.
	CPUs   int   `json:"cpus"`
	Memory int64 `json:"memory"`
	// Images are those that a child may have beside its parent's.
	Images []string `json:"images,omitempty"`
	// Lifetime, in nanoseconds, is when a child is removed.
	Lifetime time.Duration `json:"lifetime"`
}

// The budget of a file that has [agent.children] and leaves a key out.
const (
	defaultChildren      = 3
	defaultChildTotal    = 20
	defaultChildMemory   = 2 << 30 // bytes
	defaultChildLifetime = 10 * time.Minute
	maxChildren          = 64
	// MaxChildDepth bounds the generations of children.
	MaxChildDepth = 4
	maxChildTotal = 100_000
)

// Approve says where a person answers the requests of an agent.
type Approve uint8

const (
	// InTerminal is by `msb requests` alone.
	InTerminal Approve = iota
	// ByClient is in the agent's own client too, which vouches that it asks a person (MCP's elicitation).
	ByClient
)

// Directory is a directory of this machine that a guest sees.
type Directory struct {
	// Host is its path here, Guest the one in the guest, which is absolute.
	Host  string `json:"host"`
	Guest string `json:"guest"`
	// Writable lets the guest change it.
	Writable bool `json:"writable,omitempty"`
	// CopyOnWrite keeps what the guest writes in the guest's own layer: the directory is served read-only.
	CopyOnWrite bool `json:"copy_on_write,omitempty"`
}

// String is HOST:GUEST, with :rw if the guest may write, :cow if its changes are its own.
func (d Directory) String() string {
	host := d.Host
	if !strings.Contains(host, "/") {
		host = "./" + host
	}
	switch {
	case d.Writable:
		return host + ":" + d.Guest + ":rw"
	case d.CopyOnWrite:
		return host + ":" + d.Guest + ":cow"
	}
	return host + ":" + d.Guest
}

// ParseDirectory takes HOST:GUEST[:MODE] apart from its end: a path of this machine may hold colons.
func ParseDirectory(text string) (d Directory, err error) {
	rest, mode := text, "ro"
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasPrefix(text[i+1:], "/") {
		rest, mode = text[:i], text[i+1:]
	}
	i := strings.LastIndex(rest, ":/")
	if i <= 0 {
		return d, errors.New("write HOST:GUEST or HOST:GUEST:rw, with an absolute path in the guest, such as .:/work")
	}
	switch mode {
	case "ro":
	case "rw":
		d.Writable = true
	case "cow":
		d.CopyOnWrite = true
	default:
		return d, fmt.Errorf("%q: it must be ro, rw or cow", mode)
	}
	d.Host, d.Guest = rest[:i], path.Clean(rest[i+1:])
	if !strings.Contains(d.Host, "/") && d.Host != "." && d.Host != ".." {
		return d, fmt.Errorf("%s is the name of a volume, which msb run and msb create take alone; for the directory write ./%s", d.Host, d.Host)
	}
	return d, nil
}

func (c *converter) agent(f *fileAgent) *Agent {
	a := &Agent{Approve: Approve(c.enum("agent.approve", f.Approve, approvals)), Images: c.words("agent.images", f.Images), Secrets: c.words("agent.secrets", f.Secrets), Tools: c.words("agent.tools", f.Tools)}
	c.checkWords("agent.images", a.Images, image.CheckReference)
	c.checkWords("agent.tools", a.Tools, func(name string) error { return unlike("toolset", name, AgentTools()) })
	if f.Directories != nil {
		c.scalar("agent.directories")
		a.Directories = []Directory{}
	}
	for i, text := range f.Directories {
		d, err := ParseDirectory(text)
		if err != nil {
			c.addErr(fmt.Sprintf("agent.directories[%d]", i), err)
			continue
		}
		d.Host = c.relative(d.Host)
		a.Directories = append(a.Directories, d)
	}
	if texts := c.words("agent.may_request", f.MayRequest); texts != nil {
		a.MayRequest = append([]SecretHost{}, c.secretHosts("agent.may_request", texts)...)
	}
	if f.Sandboxes != nil {
		a.Sandboxes = c.count("agent.sandboxes", *f.Sandboxes, maxLimit)
	}
	if f.CPUs != nil {
		a.CPUs = c.count("agent.cpus", *f.CPUs, maxCPUs)
	}
	if f.Memory != nil {
		a.Memory = c.size("agent.memory", f.Memory, ParseSize)
	}
	if a.Memory > 0 && a.Memory < minMemory {
		c.add("agent.memory", "less than the guest's kernel boots with", "write at least \"96M\"")
	}
	if f.Disk != nil {
		a.Disk = c.size("agent.disk", f.Disk, ParseSize)
	}
	c.duration("agent.idle_stop", f.IdleStop, &a.IdleStop)
	c.duration("agent.lifetime", f.Lifetime, &a.Lifetime)
	if f.Children != nil {
		a.Children = c.children(f.Children)
	}
	return a
}

func newChildBudget() *ChildBudget {
	return &ChildBudget{Count: defaultChildren, Total: defaultChildTotal, Depth: 1, CPUs: defaultChildren, Memory: defaultChildMemory, Lifetime: defaultChildLifetime}
}

func (c *converter) children(f *fileChildren) *ChildBudget {
	b := newChildBudget()
	b.Images = c.words("agent.children.images", f.Images)
	c.checkWords("agent.children.images", b.Images, image.CheckReference)
	for _, n := range []struct {
		key  string
		from *int64
		to   *int
		most int64
	}{{"count", f.Count, &b.Count, maxChildren}, {"total", f.Total, &b.Total, maxChildTotal}, {"depth", f.Depth, &b.Depth, MaxChildDepth}, {"cpus", f.CPUs, &b.CPUs, maxCPUs}} {
		if n.from != nil {
			*n.to = c.count("agent.children."+n.key, *n.from, n.most)
		}
	}
	if f.Memory != nil {
		b.Memory = c.size("agent.children.memory", f.Memory, ParseSize)
	}
	c.duration("agent.children.lifetime", f.Lifetime, &b.Lifetime)
	return b
}

// words reads a list of names: none is empty or there twice.
func (c *converter) words(key string, list []string) []string {
	if list != nil {
		c.scalar(key)
	}
	for i, w := range list {
		if w == "" || slices.Contains(list[:i], w) {
			c.add(fmt.Sprintf("%s[%d]", key, i), fmt.Sprintf("%q is empty, or there twice", w), "leave it out")
		}
	}
	return list
}

// AgentTools are the values of agent.tools.
func AgentTools() []string {
	return []string{"files", "images", "jobs", "manage", "metrics", "network", "volumes", "snapshots", "ports", "git", "sync", "children", "all", "microsandbox", "microsandbox-http", "bird"}
}

func (c *converter) checkWords(key string, list []string, check func(string) error) {
	for i, w := range list {
		if w == "" {
			continue // words said so
		}
		if err := check(w); err != nil {
			c.addErr(fmt.Sprintf("%s[%d]", key, i), err)
		}
	}
}

// unlike says that there is no such thing of that name, and which may be meant.
func unlike(what, name string, known []string) error {
	if slices.Contains(known, name) {
		return nil
	}
	guess := ""
	for _, k := range known { // names of secrets are in capitals, which Closest doesn't compare
		if guess == "" && Closest(name, []string{strings.ToLower(k)}) != "" {
			guess = fmt.Sprintf("did you mean %q? ", k)
		}
	}
	return fmt.Errorf("there is no %s %q; %sthere are: %s", what, name, guess, cmp.Or(strings.Join(known, ", "), "none"))
}

// checkAgent looks at what [agent] says of the rest of the policy.
func (f *faults) checkAgent(p *Policy) {
	if p.Agent == nil {
		return
	}
	secrets := make([]string, len(p.Secrets))
	for i := range p.Secrets {
		secrets[i] = p.Secrets[i].Name
	}
	for i, name := range p.Agent.Secrets {
		if err := unlike("secret", name, secrets); err != nil {
			f.addErr(fmt.Sprintf("agent.secrets[%d]", i), err)
		}
	}
}

func (w *writer) agent(a *Agent) {
	if a == nil {
		return
	}
	w.table("agent")
	for _, l := range []struct {
		key  string
		list []string
	}{{"images", a.Images}, {"directories", directoryTexts(a.Directories)}, {"secrets", a.Secrets}, {"tools", a.Tools}, {"may_request", hostTexts(a.MayRequest)}} {
		if l.list != nil {
			w.key(l.key, l.list)
		}
	}
	if a.Approve != InTerminal {
		w.key("approve", a.Approve.String())
	}
	for _, n := range []struct {
		key string
		n   int
	}{{"sandboxes", a.Sandboxes}, {"cpus", a.CPUs}} {
		if n.n != 0 {
			w.key(n.key, n.n)
		}
	}
	for _, s := range []struct {
		key  string
		size int64
	}{{"memory", a.Memory}, {"disk", a.Disk}} {
		if s.size != 0 {
			w.key(s.key, FormatSize(s.size))
		}
	}
	for _, d := range []struct {
		key  string
		time time.Duration
	}{{"idle_stop", a.IdleStop}, {"lifetime", a.Lifetime}} {
		if d.time != 0 {
			w.key(d.key, d.time.String())
		}
	}
	if b := a.Children; b != nil {
		w.table("agent.children")
		w.key("count", b.Count)
		w.key("total", b.Total)
		w.key("depth", b.Depth)
		w.key("cpus", b.CPUs)
		w.key("memory", FormatSize(b.Memory))
		if b.Images != nil {
			w.key("images", b.Images)
		}
		w.key("lifetime", b.Lifetime.String())
	}
}

func hostTexts(all []SecretHost) []string {
	if all == nil {
		return nil
	}
	out := make([]string, 0, len(all))
	for _, h := range all {
		out = append(out, h.String())
	}
	return out
}

func directoryTexts(all []Directory) []string {
	if all == nil {
		return nil
	}
	out := make([]string, 0, len(all))
	for _, d := range all {
		out = append(out, d.String())
	}
	return out
}
