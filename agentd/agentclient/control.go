package agentclient

import (
	"context"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
)

// SetClock sets the guest's wall clock to t, after a pause or a jump, and returns how far off
// it was: the guest's clock minus t.
func (c *Client) SetClock(ctx context.Context, t time.Time) (time.Duration, error) {
	resp, err := c.api.SetClock(ctx, &agentpb.SetClockRequest{ClockUnixNs: t.UnixNano()})
	if err != nil {
		return 0, c.callError(ctx, err)
	}
	return time.Duration(resp.GetOffsetNs()), nil
}

// Stats asks the guest what it uses.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	r, err := c.api.Stats(ctx, &agentpb.StatsRequest{})
	if err != nil {
		return Stats{}, c.callError(ctx, err)
	}
	return Stats{
		MemoryTotalBytes:     r.GetMemoryTotalBytes(),
		MemoryAvailableBytes: r.GetMemoryAvailableBytes(),
		Uptime:               time.Duration(r.GetUptimeNs()),
		CPUBusy:              time.Duration(r.GetCpuBusyNs()),
		Processes:            int(r.GetProcesses()),
		Execs:                int(r.GetExecs()),
		MaxExecs:             int(r.GetMaxExecs()),
		OOMKills:             int64(r.GetOomKills()),
		Clock:                time.Unix(0, r.GetClockUnixNs()),
		RootTotalBytes:       r.GetRootTotalBytes(),
		RootAvailableBytes:   r.GetRootAvailableBytes(),
	}, nil
}

// Shutdown asks the guest to end its processes, write back its data and leave the machine. It
// returns when the guest has agreed; Done is closed when the guest has ended.
func (c *Client) Shutdown(ctx context.Context) error {
	c.leaving.Store(true)
	_, err := c.api.Shutdown(ctx, &agentpb.ShutdownRequest{})
	if err != nil {
		c.leaving.Store(false)
	}
	return c.callError(ctx, err)
}
