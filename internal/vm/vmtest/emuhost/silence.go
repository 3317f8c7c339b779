//go:build linux

package emuhost

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// silenceWatch waits until a process has used some processor time without a word.
type silenceWatch struct {
	used  func() time.Duration // by the process, ever
	most  time.Duration
	timer *time.Timer

	mu    sync.Mutex
	since time.Duration // what was used at the last word
}

// watchSilence calls frozen, once, when used has grown by most since the last call of heard.
func watchSilence(used func() time.Duration, most time.Duration, frozen func()) *silenceWatch {
	w := &silenceWatch{used: used, most: most, since: used()}
	w.mu.Lock()
	defer w.mu.Unlock() // the timer is set before it is used
	w.timer = time.AfterFunc(most, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if left := w.most - (w.used() - w.since); left > 0 {
			w.timer.Reset(left)
			return
		}
		frozen()
	})
	return w
}

func (w *silenceWatch) heard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = w.used()
	w.timer.Reset(w.most)
}

func (w *silenceWatch) stop() { w.timer.Stop() }

// ticksPerSecond is the unit of times in /proc/PID/stat (USER_HZ, proc(5)).
const ticksPerSecond = 100

// processorTime is what a process has used; 0 if it has ended.
func processorTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in brackets, may hold spaces. utime and stime are the 14th and 15th field, the state behind the name is the third.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond
}
