package sandbox

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func parsePolicy(t *testing.T, text string) *policies.Policy {
	t.Helper()
	p, err := policies.Parse("p.toml", []byte("version = 1\n"+text), nil)
	must(t, err)
	return p
}

// newParent makes a sandbox that may have children.
func newParent(t *testing.T, h *Home, budget *ChildBudget, change func(*Config)) {
	t.Helper()
	cfg := Config{
		Home: h.Dir(), Name: "top", Label: "agents", CPUs: 2, Memory: 512 << 20, Children: budget, Disk: 64 << 20,
		Floor:  parsePolicy(t, "[[egress.allow]]\nhosts = [\"a.example\", \"b.example\"]\n"),
		Policy: parsePolicy(t, "[[egress.allow]]\nhosts = [\"a.example\", \"b.example\", \"c.example\"]\n"),
	}
	if change != nil {
		change(&cfg)
	}
	must(t, Create(t.Context(), cfg))
}

func budget(change func(*ChildBudget)) *ChildBudget {
	b := &ChildBudget{Count: 3, Total: 5, Depth: 2, CPUs: 6, Memory: 2 << 30, Lifetime: time.Minute}
	if change != nil {
		change(b)
	}
	return b
}

// TestI15_ChildrenInheritOnlyWhatIsListed: a child of a sandbox with everything has what confines it, what it is made of and
// nothing more. A new field of Config has to be in one of the lists.
func TestI15_ChildrenInheritOnlyWhatIsListed(t *testing.T) {
	t.Parallel()
	cfg := fullConfig(t)
	cfg.Policy, cfg.Floor = cfg.Floor, nil // which a child's must be within
	st := newStored("top", &cfg, &image.Image{Digest: "sha256:0"}, &Admission{})
	f := &family{parent: st, root: st}
	st.Children = budget(nil)
	child, err := f.config(&ChildOptions{Name: "child"})
	must(t, err)
	inherited := []string{
		"Policy", "HTTPProxy", "NoNet", "Containers", "Image", "PolicyImage", "Backend", "Cold", "CPUs", "Memory", "Disk", "Env", "Directories", "Hide", "HideCredentials",
		"OperatorDirectories", "OperatorVolumes", "RealDirectories", "DirectoryUser", "AuditLabels", "PcapOptions", "IdleStop", "ReadOnly", "Tmpfs",
	}
	own := map[string]any{"Name": "child", "AutoRemove": true, "Lifetime": time.Minute, "Children": st.Children}
	was, is := reflect.ValueOf(cfg), reflect.ValueOf(*child)
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		if !was.Type().Field(i).IsExported() || slices.Contains(inherited, name) {
			continue
		}
		want, ok := own[name]
		if !ok {
			want = reflect.Zero(was.Field(i).Type()).Interface()
		}
		if got := is.Field(i).Interface(); !reflect.DeepEqual(got, want) && (ok || is.Field(i).Kind() != reflect.Slice || is.Field(i).Len() > 0) {
			t.Errorf("%s of the child is %v, want %v", name, got, want)
		}
	}
	for parents, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: time.Second, time.Minute: time.Minute, time.Hour: time.Minute} {
		st.Lifetime = parents
		if c, err := f.config(&ChildOptions{}); err != nil || c.Lifetime != want {
			t.Errorf("under a parent with %s: %s, %v; want %s", parents, c.Lifetime, err, want)
		}
	}
	if child.parent != "top" || child.CPUs != cfg.CPUs || child.Memory != cfg.Memory {
		t.Errorf("%+v", child)
	}
}

// TestI15_ChildrenKeepToTheBudget, each bound with its twin: a child that is just within.
func TestI15_ChildrenKeepToTheBudget(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	cs := h.Children()
	newParent(t, h, nil, func(c *Config) { c.Name = "none" })
	for name, c := range map[string]struct {
		budget func(*ChildBudget)
		child  ChildOptions
		want   string // of the second; "" is for none
	}{
		"no bound reached": {nil, ChildOptions{}, ""},
		"count":            {func(b *ChildBudget) { b.Count = 1 }, ChildOptions{}, "at most 1 may be at once"},
		"total":            {func(b *ChildBudget) { b.Total = 1 }, ChildOptions{}, "no more may be"},
		"processors":       {func(b *ChildBudget) { b.CPUs = 3 }, ChildOptions{}, "4 CPUs together"},
		"one processor":    {func(b *ChildBudget) { b.CPUs = 2 }, ChildOptions{CPUs: 1}, ""},
		"memory":           {func(b *ChildBudget) { b.Memory = 1023 << 20 }, ChildOptions{}, "1024 MiB together"},
		"less memory":      {func(b *ChildBudget) { b.Memory = 1023 << 20 }, ChildOptions{Memory: 256 << 20}, ""},
		"its memory":       {nil, ChildOptions{Memory: 513 << 20}, "more than the"},
		"its processors":   {nil, ChildOptions{CPUs: 3}, "more than the"},
		"below nothing":    {nil, ChildOptions{CPUs: -1}, "more than the"},
		"image":            {nil, ChildOptions{Image: "alpine"}, "children may not have image"},
		"a file":           {func(b *ChildBudget) { b.Images = []string{"dir:/etc"} }, ChildOptions{Image: "dir:/etc"}, "children may not have image"},
		"its own image":    {nil, ChildOptions{Image: DefaultImage}, ""},
		"a path as name":   {nil, ChildOptions{Name: "../../x"}, "lower-case letters"},
		"another's name":   {nil, ChildOptions{Name: "none"}, "exists already"},
	} {
		parent := strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "'", "")
		newParent(t, h, budget(c.budget), func(cfg *Config) { cfg.Name = parent })
		if c.want == "" || strings.Contains(c.want, "together") || strings.Contains(c.want, "may be") {
			if _, err := cs.Make(t.Context(), parent, ChildOptions{}); err != nil {
				t.Errorf("%s: the first: %v", name, err)
			}
			if c.child.CPUs > 0 { // the budget of one whole is used up
				c.want = "CPUs together"
			}
		}
		child, err := cs.Make(t.Context(), parent, c.child)
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || c.want == "" && err != nil {
			t.Errorf("%s: %q, %v; want %q", name, child, err, c.want)
		}
	}
	if _, err := h.Children().Make(t.Context(), "none", ChildOptions{}); !errors.Is(err, ErrChildren) {
		t.Errorf("without a budget: %v", err)
	}
}

// TestI15_GrandchildrenCountToo: the budget is that of the sandbox above all, however deep its children are.
func TestI15_GrandchildrenCountToo(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	newParent(t, h, budget(nil), nil)
	cs := h.Children()
	child, err := cs.Make(t.Context(), "top", ChildOptions{CPUs: 1})
	must(t, err)
	below, err := cs.Make(t.Context(), child, ChildOptions{Name: "below"})
	must(t, err)
	if _, err := cs.Make(t.Context(), below, ChildOptions{}); err == nil || !strings.Contains(err.Error(), "2 deep at most") {
		t.Errorf("a third generation: %v", err)
	}
	_, err = cs.Make(t.Context(), child, ChildOptions{})
	must(t, err)
	for _, parent := range []string{"top", child} {
		if _, err := cs.Make(t.Context(), parent, ChildOptions{}); err == nil || !strings.Contains(err.Error(), "at most 3 may be at once") {
			t.Errorf("a fourth, of %s: %v", parent, err)
		}
	}
	st, err := cs.List("top")
	if err != nil || len(st.Children) != 3 || st.Made != 3 || st.Root != "top" || st.Budget.Count != 3 {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err := cs.List(child); err != nil || len(st.Children) != 2 || st.Made != 3 || st.Root != "top" {
		t.Errorf("%+v, %v", st, err)
	}
	must(t, cs.Remove(t.Context(), "top", child)) // with its own
	if all, err := h.List(); err != nil || len(all) != 1 {
		t.Errorf("%d are left, %v", len(all), err)
	}
	for range 2 { // what was made stays counted
		_, err = cs.Make(t.Context(), "top", ChildOptions{Name: "again"})
		must(t, err)
		must(t, cs.Remove(t.Context(), "top", "again"))
	}
	if _, err := cs.Make(t.Context(), "top", ChildOptions{}); err == nil || !strings.Contains(err.Error(), "5 were made") {
		t.Errorf("a sixth in its life: %v", err)
	}
	must(t, h.Remove(t.Context(), "top"))
}

// TestI15_ChildrenAreAtMostTheirParents: policy, label, lifetime, what is shared and what is published.
func TestI15_ChildrenAreAtMostTheirParents(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	newParent(t, h, budget(nil), func(c *Config) { c.Ports, c.Policy.Ingress = nil, policies.Ingress{} })
	cs := h.Children()
	verdict := func(name, host string) bool {
		t.Helper()
		p, err := h.Policy(name)
		must(t, err)
		a, err := Explain(p, host+":443", "", "")
		must(t, err)
		return !a.Denied()
	}
	same, err := cs.Make(t.Context(), "top", ChildOptions{Name: "same"})
	must(t, err)
	narrow, err := cs.Make(t.Context(), "top", ChildOptions{Name: "narrow", Policy: parsePolicy(t, "[[egress.allow]]\nhosts = [\"a.example\", \"c.example\", \"d.example\"]\n")})
	must(t, err)
	wide, err := cs.Make(t.Context(), "narrow", ChildOptions{Name: "wide", Policy: parsePolicy(t, "[egress]\ndefault = \"public\"\n")})
	must(t, err)
	for host, want := range map[string]string{"a.example": "top same narrow wide", "b.example": "top same", "c.example": "", "d.example": "", "e.example": ""} {
		for _, name := range []string{"top", same, narrow, wide} {
			if got := verdict(name, host); got != strings.Contains(" "+want+" ", " "+name+" ") {
				t.Errorf("%s reaches %s: %v", name, host, got)
			}
		}
	}
	st, err := h.Inspect("narrow")
	if err != nil || st.Parent != "top" || st.Label != "agents" || st.Lifetime != time.Minute || st.CPUs != 2 || len(st.Ports) != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	stored, err := loadStored(h, "narrow")
	if err != nil || !stored.AutoRemove || stored.Children == nil || len(stored.Between) != 1 {
		t.Errorf("%+v, %v", stored, err)
	}
	for name, p := range map[string]*policies.Policy{
		"secrets": parsePolicy(t, "[[egress.allow]]\nhosts = [\"a.example\"]\nprotocol = \"https\"\n[secrets.K]\nfrom = \"file:/etc/shadow\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"),
		"[agent]": parsePolicy(t, "[agent]\n"),
	} {
		if _, err := cs.Make(t.Context(), "top", ChildOptions{Policy: p}); err == nil {
			t.Errorf("a child's policy with %s is taken", name)
		}
	}
	if _, err := h.Requests().Ask(t.Context(), "narrow", "d.example", 443, nil, "more"); !errors.Is(err, ErrRequest) {
		t.Errorf("a child asks for more than its parent has: %v", err)
	}
	if _, err := h.Requests().Ask(t.Context(), "top", "d.example", 443, nil, "more"); err != nil {
		t.Errorf("its parent may ask: %v", err)
	}
}

// TestI15_OtherSandboxesChildrenAreNot removed, and a later sandbox of a parent's name has none.
func TestI15_ChildrenBelongToOneParent(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	newParent(t, h, budget(nil), nil)
	newParent(t, h, budget(nil), func(c *Config) { c.Name = "other" })
	cs := h.Children()
	child, err := cs.Make(t.Context(), "top", ChildOptions{Name: "child"})
	must(t, err)
	for _, name := range []string{child, "other", "top", "../top", "none"} {
		if err := cs.Remove(t.Context(), "other", name); !errors.Is(err, ErrNoSandbox) {
			t.Errorf("other removes %s: %v", name, err)
		}
	}
	must(t, h.Remove(t.Context(), "top"))
	newParent(t, h, budget(nil), nil)
	if st, err := cs.List("top"); err != nil || len(st.Children) != 0 {
		t.Errorf("the new one of the name has %+v, %v", st, err)
	}
	if err := cs.Remove(t.Context(), "top", child); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("the new one removes it: %v", err)
	}
	if _, err := cs.Make(t.Context(), child, ChildOptions{}); !errors.Is(err, ErrChildren) {
		t.Errorf("a child whose parent has gone has children: %v", err)
	}
}

// TestI15_ConcurrentChildrenKeepTheBudget: calls that come together don't all find room.
func TestI15_ConcurrentChildrenKeepTheBudget(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	newParent(t, h, budget(nil), nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { _, _ = h.Children().Make(t.Context(), "top", ChildOptions{}) })
	}
	all.Wait()
	if st, err := h.Children().List("top"); err != nil || len(st.Children) != 3 || st.Made != 3 {
		t.Errorf("%d children, %d made, %v; want 3", len(st.Children), st.Made, err)
	}
}

// TestI15_LoopsOfParentsEnd: a state that says so is damage, not a hang.
func TestLoopsOfParentsEnd(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	newParent(t, h, budget(nil), nil)
	st, err := loadStored(h, "top")
	must(t, err)
	st.Parent, st.ParentCreated = "top", st.Created
	must(t, state.WriteJSON(namedPath(h, "top"), state.StoredFile, st))
	if _, err := h.Children().Make(t.Context(), "top", ChildOptions{}); !errors.Is(err, ErrState) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(namedPath(h, "top", state.ChildrenFile)); err == nil {
		t.Error("one was counted")
	}
}

// TestI15_ChildrenCantRequest: what a person approved for a child would be more than its parent has. The twin is the parent.
func TestI15_ChildrenCantRequest(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	newParent(t, h, budget(nil), nil)
	child, err := h.Children().Make(t.Context(), "top", ChildOptions{})
	must(t, err)
	below, err := h.Children().Make(t.Context(), child, ChildOptions{})
	must(t, err)
	for name, may := range map[string]bool{"top": true, child: false, below: false} {
		_, err := h.Requests().Ask(t.Context(), name, "d.example.com", 0, nil, "x")
		all, listErr := h.Requests().List(name)
		if may != (err == nil) || !may && !errors.Is(err, ErrRequest) || listErr != nil || len(all) > 0 != may {
			t.Errorf("%s: %v, %+v, %v", name, err, all, listErr)
		}
	}
}

// TestI17_ChildrenWhoseParentEndedStillCount: a program that ends a child, such as by poweroff, must not make room for more
// than the budget by it. The twin removes what was below the child, too.
func TestI17_ChildrenWhoseParentEndedStillCount(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		h := newHome(t)
		newParent(t, h, budget(func(b *ChildBudget) { b.Count = 2 }), nil)
		cs := h.Children()
		child, err := cs.Make(t.Context(), "top", ChildOptions{})
		must(t, err)
		below, err := cs.Make(t.Context(), child, ChildOptions{})
		must(t, err)
		if all {
			must(t, cs.Remove(t.Context(), "top", child))
		} else {
			must(t, h.Remove(t.Context(), child)) // as its end does
		}
		if st, err := cs.List("top"); err != nil || len(st.Children) == 1 != !all || len(st.Children) > 1 {
			t.Errorf("%v: %+v, %v", all, st, err)
		}
		_, err = cs.Make(t.Context(), "top", ChildOptions{Name: "next"})
		must(t, err)
		if _, err = cs.Make(t.Context(), "top", ChildOptions{}); all != (err == nil) || err != nil && !strings.Contains(err.Error(), "at most 2 may be at once") {
			t.Errorf("%v: one more beside %s and next: %v", all, below, err)
		}
		top, err := h.Inspect("top")
		must(t, err)
		must(t, h.Remove(t.Context(), "top"))
		must(t, cs.RemoveAll(t.Context(), "top", top.Created)) // also when it has gone
		if left, err := h.List(); err != nil || len(left) != 0 {
			t.Errorf("%v: %d are left, %v", all, len(left), err)
		}
	}
}

// TestI17_ChildrenMadeDuringARemovalGoToo: whoever removes a sandbox lists its children before one that is being made is
// there.
func TestI17_ChildrenMadeDuringARemovalGoToo(t *testing.T) {
	t.Parallel()
	for range 4 {
		h := newHome(t)
		newParent(t, h, budget(nil), nil)
		top, err := h.Inspect("top")
		must(t, err)
		var made sync.WaitGroup
		begun := make(chan struct{}, 3)
		for range 3 {
			made.Go(func() {
				begun <- struct{}{}
				_, _ = h.Children().Make(t.Context(), "top", ChildOptions{})
			})
		}
		<-begun
		must(t, h.Remove(t.Context(), "top"))
		must(t, h.Children().RemoveAll(t.Context(), "top", top.Created))
		made.Wait()
		if left, err := h.List(); err != nil || len(left) != 0 {
			t.Errorf("%d are left, %v", len(left), err)
		}
	}
}
