package mcp

import (
	"context"
	"encoding/json"
)

func (s *server) sandboxMetrics(ctx context.Context, raw json.RawMessage) (string, error) {
	var a sandboxArg
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	return s.with(ctx, a.Sandbox, func(m machine) (string, error) {
		st, err := m.Stats(ctx)
		if err != nil {
			return "", err
		}
		return asJSON(map[string]any{
			"memory_mb": st.MemoryTotalBytes >> 20, "memory_free_mb": st.MemoryAvailableBytes >> 20, "disk_mb": st.RootTotalBytes >> 20, "disk_free_mb": st.RootAvailableBytes >> 20,
			"uptime_s": int(st.Uptime.Seconds()), "cpu_busy_s": int(st.CPUBusy.Seconds()), "processes": st.Processes, "oom_kills": st.OOMKills,
		})
	})
}
