package review_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	// differentialEnv says for how long the random tests run, "60s" (make test-differential).
	differentialEnv = "MSB_DIFFERENTIAL"
	// seedEnv is the seed of one case to run again.
	seedEnv = "MSB_TEST_SEED"
)

// randomCases runs cases of random seeds, n of them or for as long as the environment says, until one fails.
func randomCases(t *testing.T, n int, run func(t *testing.T, seed uint64)) {
	t.Helper()
	var until time.Time
	if text := os.Getenv(differentialEnv); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		n, until = 1<<30, time.Now().Add(d)
	}
	next := rand.Uint64
	if text := os.Getenv(seedEnv); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		n, next = 1, func() uint64 { return seed }
	}
	for range n {
		seed := next()
		if !until.IsZero() && time.Now().After(until) ||
			!t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { run(t, seed) }) {
			return
		}
	}
}
