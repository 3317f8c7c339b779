package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"reflect"
	"time"
)

// entryCoder writes an entry of the index, or reads one. The form of both is what its methods do in their order: JSON of ten
// thousand entries would take longer to read than everything else that a list does.
type entryCoder struct {
	reading bool
	in      string // what is left to read
	out     []byte
	bad     bool // the entry can't be read, or not be written
}

// newEntry is "" for a status that can't be kept.
func newEntry(at, jobs stamp, st *Status) string {
	var c entryCoder
	name := st.Name
	c.text(&name)
	c.stamp(&at)
	c.stamp(&jobs)
	c.status(st)
	if c.bad {
		return ""
	}
	return string(c.out)
}

// status also covers the fields that have no place of their own: they are JSON, in front of the others, which most sandboxes
// have none of.
func (c *entryCoder) status(s *Status) {
	var others string
	if !c.reading {
		others = c.others(*s)
	}
	if c.text(&others); c.reading && others != "" && json.Unmarshal([]byte(others), s) != nil {
		c.bad = true
	}
	c.common(s)
}

// others is the JSON of the fields that common does not cover.
func (c *entryCoder) others(s Status) string {
	var empty entryCoder
	empty.common(&Status{})
	(&entryCoder{reading: true, in: string(empty.out)}).common(&s)
	if reflect.DeepEqual(s, Status{}) {
		return ""
	}
	b, err := json.Marshal(&s)
	c.bad = c.bad || err != nil
	return string(b)
}

// common covers the fields that many sandboxes have.
func (c *entryCoder) common(s *Status) {
	for _, text := range [...]*string{&s.Name, &s.Label, &s.Image, &s.Digest, &s.PolicyFile, &s.Dir, &s.Audit, &s.Console} {
		c.text(text)
	}
	cpus, labels, ended := int64(s.CPUs), int64(len(s.Labels)), int64(0)
	if s.End != nil {
		ended = 1
	}
	for _, number := range [...]*int64{&cpus, &s.Memory, &s.Disk, &s.Used, (*int64)(&s.IdleStop), (*int64)(&s.Lifetime), (*int64)(&s.Ran), &labels, &ended} {
		c.number(number)
	}
	c.time(&s.Created)
	if c.reading {
		s.CPUs, s.Labels, s.End = int(cpus), nil, nil
		for ; labels > 0 && !c.bad; labels-- {
			var key, value string
			c.text(&key)
			c.text(&value)
			if s.Labels == nil {
				s.Labels = map[string]string{}
			}
			s.Labels[key] = value
		}
		if ended == 1 {
			s.End = &End{}
		}
	}
	if !c.reading {
		for key, value := range s.Labels {
			c.text(&key)
			c.text(&value)
		}
	}
	if s.End != nil {
		c.time(&s.End.Time)
		c.text((*string)(&s.End.Kind))
		c.text(&s.End.Message)
	}
}

func (c *entryCoder) text(s *string) {
	n := int64(len(*s))
	c.number(&n)
	switch {
	case !c.reading:
		c.out = append(c.out, *s...)
	case n < 0 || n > int64(len(c.in)):
		c.bad = true
	default:
		*s, c.in = c.in[:n], c.in[n:]
	}
}

func (c *entryCoder) number(n *int64) {
	if !c.reading {
		c.out = binary.AppendVarint(c.out, *n)
		return
	}
	read, size := binary.Varint([]byte(c.in[:min(len(c.in), binary.MaxVarintLen64)]))
	if size <= 0 {
		c.bad, c.in, read, size = true, "", 0, 0
	}
	*n, c.in = read, c.in[size:]
}

func (c *entryCoder) stamp(s *stamp) {
	device, inode := int64(s.Device), int64(s.Inode)
	for _, n := range [...]*int64{&device, &inode, &s.Modified, &s.Changed} {
		c.number(n)
	}
	s.Device, s.Inode = uint64(device), uint64(inode)
}

func (c *entryCoder) time(t *time.Time) {
	b, err := t.MarshalBinary()
	text := string(b)
	c.text(&text)
	if c.reading {
		err = t.UnmarshalBinary([]byte(text))
	}
	c.bad = c.bad || err != nil
}
