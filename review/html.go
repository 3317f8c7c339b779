package review

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Bounds on the rows of the page, so that browsers stay quick. The page says how many it leaves out.
const (
	maxPageFlows  = 5000
	maxPageNames  = 2000
	maxPageAsked  = 5000
	timelineSteps = 120
	chartHeight   = 110
)

//go:embed report.html
var reportPage string

// pageTemplate is made when it is needed: every process of msb would make it otherwise.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{"size": size}).Parse(reportPage))
})

// page is what the template shows.
type page struct {
	Title    string
	Summary  []string
	Compared bool
	Head     jsonHead
	Verdicts []verdictCount
	Names    []nameCount
	Lookups  []Lookup
	Flows    []pageFlow
	Hidden   int
	Requests []pageRequest
	Unlisted int64
	// MoreLookups and MoreNames are not listed.
	MoreLookups, MoreNames int
	Timeline               []timeStep
	Step                   time.Duration
}

type verdictCount struct {
	Action, Rule, Reason string
	Flows                int
	Up, Down             int64
}

type nameCount struct {
	Name     string
	Flows    int
	Denied   int
	Up, Down int64
}

type pageFlow struct {
	Flow
	Target, Known, Other, Action string
	Change                       bool
	Offset                       string
}

type pageRequest struct {
	Request
	Target, Other, Action string
	Change                bool
}

// timeStep is a bar of the timeline: flows that began in it, and as bars that stand on each other.
type timeStep struct {
	X                    int
	Allow, Deny, Unknown int
	AllowH, DenyH        int
	UnknownH             int
	AllowY, DenyY        int
	UnknownY             int
	When                 string
}

// WriteHTML writes the report as one page that loads nothing: styles, script and data are in it. All text
// of the capture is escaped, and the page's own policy forbids it every request.
func (r *Report) WriteHTML(w io.Writer, title string) error {
	p := page{Title: title, Summary: r.Summary(), Compared: r.compared, Head: r.head()}
	p.Lookups, p.MoreLookups = first(r.Lookups, maxPageNames)
	listed, more := first(r.Requests, maxPageAsked)
	p.Unlisted = r.MoreRequests + int64(more)
	for i := range listed {
		q := &listed[i]
		p.Requests = append(p.Requests, pageRequest{
			Request: *q, Target: q.fullPath(), Other: action(r.other(q.Against, q.Recorded)), Action: action(&q.Verdict), Change: q.Changed(),
		})
	}
	p.gather(r)
	return pageTemplate().Execute(w, p)
}

// first returns at most n of all, and how many more there are, which the page says.
func first[E any](all []E, n int) (listed []E, more int) {
	listed = all[:min(len(all), n)]
	return listed, len(all) - len(listed)
}

func (p *page) gather(r *Report) {
	verdicts, names := map[verdictCount]*verdictCount{}, map[string]*nameCount{}
	span := max(r.End.Sub(r.Begin), time.Millisecond)
	p.Step = span/timelineSteps + 1
	p.Timeline = make([]timeStep, timelineSteps)
	for f := range r.Flows() {
		if f.Verdict == nil {
			continue
		}
		p.count(verdicts, names, &f)
		p.Timeline[min(max(int(f.Start.Sub(r.Begin)/p.Step), 0), timelineSteps-1)].add(&f)
		if len(p.Flows) == maxPageFlows {
			p.Hidden++
			continue
		}
		p.Flows = append(p.Flows, pageFlow{
			Flow: f, Target: f.target(), Known: f.known(), Other: action(r.other(f.Against, f.Recorded)),
			Action: action(f.Verdict), Change: f.Changed(),
			Offset: strconv.FormatFloat(f.Start.Sub(r.Begin).Seconds(), 'f', 3, 64),
		})
	}
	for _, v := range verdicts {
		p.Verdicts = append(p.Verdicts, *v)
	}
	slices.SortFunc(p.Verdicts, func(a, b verdictCount) int {
		if a.Flows != b.Flows {
			return b.Flows - a.Flows
		}
		return compare(a.Action+a.Rule+a.Reason, b.Action+b.Rule+b.Reason)
	})
	for _, n := range names {
		p.Names = append(p.Names, *n)
	}
	slices.SortFunc(p.Names, func(a, b nameCount) int {
		if a.Up+a.Down != b.Up+b.Down {
			return compare(b.Up+b.Down, a.Up+a.Down)
		}
		return compare(a.Name, b.Name)
	})
	p.Names, p.MoreNames = first(p.Names, maxPageNames)
	p.scale()
}

func (p *page) count(verdicts map[verdictCount]*verdictCount, names map[string]*nameCount, f *Flow) {
	key := verdictCount{Action: f.Verdict.Action, Rule: f.Verdict.Rule, Reason: f.Verdict.Reason}
	v := verdicts[key]
	if v == nil {
		v = &key
		verdicts[verdictCount{Action: key.Action, Rule: key.Rule, Reason: key.Reason}] = v
	}
	v.Flows++
	v.Up += f.BytesUp
	v.Down += f.BytesDown
	who := f.known()
	if who == "" {
		who = f.Dst.Addr().String()
	}
	n := names[who]
	if n == nil {
		n = &nameCount{Name: who}
		names[who] = n
	}
	n.Flows++
	n.Up += f.BytesUp
	n.Down += f.BytesDown
	if f.Verdict.Action == "deny" {
		n.Denied++
	}
}

func (t *timeStep) add(f *Flow) {
	switch {
	case f.Verdict.allowed():
		t.Allow++
	case f.Verdict.Action == Undecided:
		t.Unknown++
	default:
		t.Deny++
	}
}

// scale gives the bars their heights.
func (p *page) scale() {
	most := 1
	for _, t := range p.Timeline {
		most = max(most, t.Allow+t.Deny+t.Unknown)
	}
	for i := range p.Timeline {
		t := &p.Timeline[i]
		t.X = i
		up := func(n int) int { return (n*(chartHeight-3) + most - 1) / most } // 3: each of the stacked bars is rounded up
		t.AllowH, t.DenyH, t.UnknownH = up(t.Allow), up(t.Deny), up(t.Unknown)
		t.AllowY = chartHeight - t.AllowH
		t.UnknownY = t.AllowY - t.UnknownH
		t.DenyY = t.UnknownY - t.DenyH
		t.When = (time.Duration(i) * p.Step).Round(time.Millisecond).String()
	}
}

func compare[T int64 | string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
