package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msb-project/msb/sandbox"
)

// collectWait bounds a scrape. A supervisor that hangs is given up earlier.
const collectWait = 15 * time.Second

// source is where figures come from: a *sandbox.Home.
type source interface {
	Usage(ctx context.Context, names ...string) ([]sandbox.Usage, error)
}

// collector asks for the figures of all sandboxes that run.
type collector struct{ from source }

var _ prometheus.Collector = (*collector)(nil)

// newCollector collects from the sandboxes of home.
func newCollector(home *sandbox.Home) *collector { return &collector{from: home} }

// Describe implements prometheus.Collector.
func (*collector) Describe(to chan<- *prometheus.Desc) {
	for i := range figures {
		to <- figures[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectWait)
	defer cancel()
	all, err := c.from.Usage(ctx)
	if err != nil {
		to <- prometheus.NewInvalidMetric(up.desc, err)
		return
	}
	for i := range all {
		u := &all[i]
		for j := range figures {
			f := &figures[j]
			if u.Problem != "" && f.desc != up.desc {
				continue
			}
			f.of(u, func(v float64, labels ...string) {
				to <- prometheus.MustNewConstMetric(f.desc, f.kind, v, append([]string{u.Name}, labels...)...)
			})
		}
	}
}
