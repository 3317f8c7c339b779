package review

import (
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/learn"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// judge is one policy with its own pins.
type judge struct {
	policy *policies.Policy
	rules  *session.Rules
	names  *dnsguard.Replay
	// learned takes the verdicts as events; nil but for the judge that learns.
	learned *learn.Collector
}

// The judges, by their place.
const (
	byPolicy = iota
	byAgainst
	byLearner
	maxJudges
)

// judges are those of one review; nil for none of that place.
type judges [maxJudges]*judge

// newJudges gives each policy a judge that knows no names yet.
func (r *reviewer) newJudges() error {
	policies := [maxJudges]*policies.Policy{byPolicy: r.options.Policy, byAgainst: r.options.Against}
	if r.options.Learn {
		policies[byLearner] = learn.Watch(r.options.Policy)
	}
	for i, p := range policies {
		if p == nil {
			continue
		}
		classifier := egress.NewClassifier(gateway()...)
		classifier.SetHost(r.options.Host...)
		rules, err := session.NewRules(p, classifier, gateway()...)
		if err != nil {
			return err
		}
		j := &judge{policy: p, rules: rules, names: dnsguard.NewReplay(p, rules.Engine)}
		if r.judges[i] != nil {
			j.learned = r.judges[i].learned
		}
		r.judges[i] = j
	}
	return nil
}

// given pins what a name record says. In the gateway's own captures these are its answers.
func (all *judges) given(rec *capture.Record) {
	for _, text := range rec.Names {
		name, err := hostname.Parse(text)
		if err != nil {
			continue
		}
		for _, j := range all {
			if j != nil {
				j.names.Given(name, oneAddr(rec.Addr))
			}
		}
	}
}

const (
	// datagramIdle ends a flow of datagrams, as in the gateway.
	datagramIdle = int64(2 * time.Minute)
	// checkContext is how many frames are read between two looks at the context.
	checkContext = 4096
)
