package audit

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// kept is a Sink that keeps what was emitted.
type kept struct {
	mu  sync.Mutex
	all []Event
}

func (k *kept) Emit(e Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, e)
}

// tally counts lines, and the verdicts that they account for.
func (k *kept) tally() (lines int, verdicts uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all), accounted(k.all)
}

// accounted is the number of attempts that events account for.
func accounted(events []Event) (n uint64) {
	for _, e := range events {
		n += max(1, e.Count)
	}
	return n
}

func denial(i int, reason string) Event {
	return Event{
		Kind: FlowOpen, Proto: "udp", Action: deny, Reason: reason, Flow: uint64(i + 1),
		Dst: netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), Port: 9,
	}
}

func TestI1_FloodsAreMergedAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k kept
		f := NewFlood(k.Emit, nil)
		const flood = 30_000
		for i := range flood {
			f.Emit(denial(i, "no_rule"))
		}
		if n, _ := k.tally(); n != floodBurst {
			t.Errorf("%d lines at once, want %d", n, floodBurst)
		}
		time.Sleep(floodEvery + time.Millisecond) // the bubble's clock, not the machine's
		synctest.Wait()
		n, verdicts := k.tally()
		if n != floodBurst+1 || verdicts != flood {
			t.Errorf("after a second: %d lines for %d verdicts, want %d for %d", n, verdicts, floodBurst+1, flood)
		}
		last := k.all[n-1]
		if last.DNS != nil || last.Kind != FlowOpen || last.Proto != "udp" || last.Action != deny ||
			last.Reason != "no_rule" || last.Dst.IsValid() || last.Flow != 0 || last.Message == "" {
			t.Errorf("merged line %+v", last)
		}
		for i := range flood { // some lines came back with the second, the rest waits for Close
			f.Emit(denial(i, "no_rule"))
		}
		f.Close()
		if n, verdicts = k.tally(); n < floodBurst+floodRate || n > floodBurst+floodRate+3 || verdicts != 2*flood {
			t.Errorf("at the end: %d lines for %d verdicts, want about %d for %d", n, verdicts, floodBurst+floodRate+2, 2*flood)
		}
		f.Emit(denial(0, "no_rule"))
		if _, verdicts = k.tally(); verdicts != 2*flood+1 {
			t.Error("a denial after Close left no line")
		}
	})
}

// TestI1_FloodsLoseNoCount emits at random times, in random sorts, and closes at a random moment, while others
// emit still.
func TestI1_FloodsLoseNoCount(t *testing.T) {
	t.Parallel()
	for seed := range uint64(25) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var k kept
			var shown uint64
			var mu sync.Mutex
			f := NewFlood(k.Emit, func(Event) { mu.Lock(); shown++; mu.Unlock() })
			kinds := []Kind{FlowOpen, DNSQuery, HTTPRequest, Limit, LinkDrop}
			var want uint64
			emit := func(rnd *rand.Rand) uint64 {
				e := Event{Kind: kinds[rnd.IntN(len(kinds))], Action: deny, Reason: fmt.Sprint(rnd.IntN(3)), Message: fmt.Sprint(rnd.IntN(3))}
				if e.Kind == LinkDrop {
					e.Count = rnd.Uint64N(4)
				}
				f.Emit(e)
				return max(1, e.Count)
			}
			for range rnd.IntN(8) {
				for range rnd.IntN(1500) {
					want += emit(rnd)
				}
				time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second)))) // the bubble's clock
			}
			var others sync.WaitGroup
			late := make([]uint64, 4)
			for i := range late {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				others.Go(func() {
					for range 100 {
						late[i] += emit(rnd)
					}
				})
			}
			f.Close()
			others.Wait()
			for _, n := range late {
				want += n
			}
			if _, got := k.tally(); got != want {
				t.Errorf("seed %d: lines account for %d denials, want %d", seed, got, want)
			}
			time.Sleep(time.Hour)
			if _, got := k.tally(); got != want {
				t.Errorf("seed %d: %d denials an hour after Close, want %d", seed, got, want)
			}
		})
	}
}

func TestI1_AllowedFlowsAreNeverMerged(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]Event{
		"allow":      {Kind: FlowOpen, Action: "allow"},
		"inspect":    {Kind: FlowOpen, Action: "inspect"},
		"would deny": {Kind: FlowOpen, Action: "allow", WouldDeny: true},
		"rebinding":  {Kind: DNSRebinding, Action: deny},
		"violation":  {Kind: SecretViolation, Action: deny},
	} {
		var k kept
		f := NewFlood(k.Emit, nil)
		for range 3 * floodBurst {
			f.Emit(e)
		}
		f.Close()
		if n, _ := k.tally(); n != 3*floodBurst {
			t.Errorf("%s: %d lines, want %d", name, n, 3*floodBurst)
		}
	}
}

func TestI1_FloodsHideNoOtherDenial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k kept
		f := NewFlood(k.Emit, nil)
		for i := range 5 * floodBurst {
			f.Emit(denial(i, "no_rule"))
		}
		f.Emit(denial(7, "metadata_address"))
		if last := k.all[len(k.all)-1]; last.Reason != "metadata_address" || last.Dst.As4()[3] != 7 {
			t.Errorf("last line %+v, want the denial of another sort", last)
		}
		for _, kind := range []Kind{Limit, LinkDrop} { // each bound by itself
			for range 5 * floodBurst {
				f.Emit(Event{Kind: kind, Action: deny, Message: "one bound"})
			}
			f.Emit(Event{Kind: kind, Action: deny, Message: "another"})
			if last := k.all[len(k.all)-1]; last.Kind != kind || last.Message != "another" {
				t.Errorf("last line %+v, want the other bound", last)
			}
		}
		f.Close()
	})
}

func TestI11_SortsOfDenialsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k kept
		f := NewFlood(k.Emit, nil)
		const sorts = 10 * floodKeys
		for i := range sorts {
			e := denial(i, "deny_rule")
			e.Rule = fmt.Sprint("rule ", i)
			f.Emit(e)
		}
		if n := len(f.sorts); n > floodKeys+1 {
			t.Errorf("%d sorts are kept, want at most %d and one for the rest", n, floodKeys)
		}
		time.Sleep(2 * floodIdle) // the bubble's clock: all have their burst again
		f.Emit(denial(0, "other"))
		if n := len(f.sorts); n != 1 {
			t.Errorf("%d sorts are kept after a quiet time, want 1", n)
		}
		f.Close()
		if _, verdicts := k.tally(); verdicts != sorts+1 {
			t.Errorf("%d verdicts are accounted for, want %d", verdicts, sorts+1)
		}
	})
}
