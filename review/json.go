package review

import (
	"encoding/json"
	"io"
	"time"
)

// jsonHead is the part of a report that is not its flows.
type jsonHead struct {
	Packets  int64            `json:"packets"`
	Bytes    int64            `json:"bytes"`
	Lost     int64            `json:"lost,omitempty"`
	Other    int64            `json:"other_frames,omitempty"`
	Dropped  map[string]int64 `json:"dropped_frames,omitempty"`
	Begin    time.Time        `json:"begin"`
	End      time.Time        `json:"end"`
	Lookups  []Lookup         `json:"lookups"`
	Requests []Request        `json:"requests,omitempty"`
	Damage   []string         `json:"damage,omitempty"`
}

func (r *Report) head() jsonHead {
	h := jsonHead{
		Packets: r.Packets, Bytes: r.Bytes, Lost: r.Lost, Other: r.Other, Dropped: r.Dropped,
		Begin: r.Begin, End: r.End, Lookups: r.Lookups, Requests: r.Requests,
	}
	for _, d := range r.Damage {
		h.Damage = append(h.Damage, d.String())
	}
	return h
}

// WriteJSON writes the report as one object. Flows are written one by one: a million of them need not be
// in memory twice.
func (r *Report) WriteJSON(w io.Writer) error {
	head, err := json.MarshalIndent(r.head(), "", "  ")
	if err != nil {
		return err
	}
	head = append(head[:len(head)-2], ",\n  \"flows\": ["...)
	if _, err := w.Write(head); err != nil {
		return err
	}
	separator := "\n    "
	for f := range r.Flows() {
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		if _, err := w.Write(append([]byte(separator), b...)); err != nil {
			return err
		}
		separator = ",\n    "
	}
	_, err = io.WriteString(w, "\n  ]\n}\n")
	return err
}
