package review

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/msb-project/msb/audit"
)

// jsonHead is the part of a report that is not its flows.
type jsonHead struct {
	Packets  int64            `json:"packets"`
	Bytes    int64            `json:"bytes"`
	Lost     int64            `json:"lost,omitempty"`
	Other    int64            `json:"other_frames,omitempty"`
	Dropped  map[string]int64 `json:"dropped_frames,omitempty"`
	Guarded  map[string]int64 `json:"guarded_frames,omitempty"`
	Begin    time.Time        `json:"begin"`
	End      time.Time        `json:"end"`
	Lookups  []Lookup         `json:"lookups"`
	Requests []Request        `json:"requests,omitempty"`
	More     int64            `json:"more_requests,omitempty"`
	Verdicts int64            `json:"lost_verdicts,omitempty"`
	Damage   []string         `json:"damage,omitempty"`
}

func (r *Report) head() jsonHead {
	h := jsonHead{
		Packets: r.Packets, Bytes: r.Bytes, Lost: r.Lost, Other: r.Other, Dropped: r.Dropped, Guarded: r.Guarded,
		Begin: r.Begin, End: r.End, Lookups: r.Lookups, Requests: r.Requests,
		More: r.MoreRequests, Verdicts: r.LostVerdicts,
	}
	for _, d := range r.Damage {
		h.Damage = append(h.Damage, d.String())
	}
	return h
}

// WriteJSON writes the report as one object, in which nothing is that a terminal would act on. Flows are written one by one: a million of them need not be
// in memory twice.
func (r *Report) WriteJSON(w io.Writer) error {
	head, err := json.MarshalIndent(r.head(), "", "  ")
	if err != nil {
		return err
	}
	head = append(audit.AppendPrintable(nil, head[:len(head)-2]), ",\n  \"flows\": ["...)
	if _, err := w.Write(head); err != nil {
		return err
	}
	rows := flowWriter{t: r.table}
	line := []byte("\n    ")
	for i := range r.table.flows {
		if line, err = rows.append(line, i); err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		line = append(line[:0], ",\n    "...)
	}
	_, err = io.WriteString(w, "\n  ]\n}\n")
	return err
}

// flowWriter writes flows as json.Marshal writes a Flow. What repeats in a capture (names, verdicts) is
// marshalled once; the rest are numbers, addresses and times.
type flowWriter struct {
	t                  *table
	name, names, ruled map[uint32][]byte
}

// append appends flow i to b.
func (w *flowWriter) append(b []byte, i int) ([]byte, error) {
	row := w.t.row(uint32(i))
	src, dst := w.t.ends(row.key)
	b = strconv.AppendInt(append(b, `{"id":`...), int64(i)+1, 10)
	b = append(append(b, `,"proto":"`...), row.key.proto.String()...)
	b = src.AppendTo(append(b, `","src":"`...))
	b = append(dst.AppendTo(append(b, `","dst":"`...)), '"')
	b, err := repeated(b, `,"names":`, &w.names, row.names, func() any { return strings.Split(w.t.names.value(row.names), " ") })
	if err != nil {
		return b, err
	}
	if b, err = repeated(b, `,"name":`, &w.name, row.name, func() any { return w.t.names.value(row.name) }); err != nil {
		return b, err
	}
	if target := w.t.proxyTargets[uint32(i)]; target != "" {
		text, err := json.Marshal(target)
		if err != nil {
			return b, err
		}
		b = append(append(b, `,"asked":`...), text...)
	}
	b = time.Unix(0, row.start).UTC().AppendFormat(append(b, `,"start":"`...), time.RFC3339Nano)
	b = time.Unix(0, row.end).UTC().AppendFormat(append(b, `","end":"`...), time.RFC3339Nano)
	b = strconv.AppendInt(append(b, `","bytes_up":`...), row.up, 10)
	b = strconv.AppendInt(append(b, `,"bytes_down":`...), row.down, 10)
	b = strconv.AppendInt(append(b, `,"packets":`...), int64(row.packets), 10)
	b = row.flags.flag(b, inbound, `,"inbound":true`)
	b = row.flags.flag(b, partial, `,"partial":true`)
	b = row.flags.flag(b, cut, `,"cut":true`)
	for _, v := range [...]struct {
		key    string
		number uint32
	}{{`,"recorded":`, row.recorded}, {`,"verdict":`, row.verdict}, {`,"against":`, row.against}} {
		if b, err = repeated(b, v.key, &w.ruled, v.number, func() any { return w.t.ruling(v.number) }); err != nil {
			return b, err
		}
	}
	return append(row.flags.flag(b, lookup, `,"lookup":true`), '}'), nil
}

// flag appends text if f has one of the flags.
func (f rowFlags) flag(b []byte, flags rowFlags, text string) []byte {
	if f&flags == 0 {
		return b
	}
	return append(b, text...)
}

// repeated appends the key and the value of an interned number, unless it is 0.
func repeated(b []byte, key string, known *map[uint32][]byte, number uint32, value func() any) ([]byte, error) {
	if number == 0 {
		return b, nil
	}
	text, ok := (*known)[number]
	if !ok {
		var err error
		if text, err = json.Marshal(value()); err != nil {
			return b, err
		}
		if *known == nil {
			*known = make(map[uint32][]byte)
		}
		(*known)[number] = text
	}
	return append(append(b, key...), text...), nil
}
