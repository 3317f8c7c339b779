// Package metrics shows what the sandboxes of a state directory use as OpenMetrics, for Prometheus and what reads its
// format.
//
//	scrape ─► Handler ─► collector ─► sandbox.Home.Usage ─ control.sock ─► each supervisor
//
// Each scrape asks the supervisors again; nothing is kept between two. Labels are names of sandboxes, which the operator
// chose, and words of closed sets (reasons, bounds, directions): no guest chooses one, so that none makes time series.
//
// It does not protect who may scrape: whoever reaches the listener reads names of sandboxes and how much they do. A
// figure that begins with msb_guest_ is the guest's own word and may be anything.
package metrics
