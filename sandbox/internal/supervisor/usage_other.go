//go:build !linux

package supervisor

import "time"

func processUsage(int) (cpu time.Duration, resident int64) { return 0, 0 }

func diskUsage(string) (size, used int64) { return 0, 0 }
