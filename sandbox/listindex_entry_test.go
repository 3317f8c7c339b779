package sandbox

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// fill gives every field below v a value that is not zero.
func fill(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(int64(*n), 5).UTC()))
		return
	case v.Type() == reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{10, 0, 0, byte(*n)})))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text " + string(rune('a'+*n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) - 10)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, key, n)
			fill(t, value, n)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n)
		}
	default:
		t.Fatalf("no value for a %s", v.Type())
	}
}

// readEntry reads an entry whole.
func readEntry(entry string) (at, jobs stamp, st Status, bad bool) {
	c, name := entryCoder{reading: true, in: entry}, ""
	c.text(&name)
	c.stamp(&at)
	c.stamp(&jobs)
	c.status(&st)
	return at, jobs, st, c.bad
}

// TestEntriesComeBack with each field of a status alone, with all of them and with none.
func TestEntriesComeBack(t *testing.T) {
	t.Parallel()
	var all Status
	n := 0
	fill(t, reflect.ValueOf(&all).Elem(), &n)
	cases := map[string]Status{"none": {}, "all": all}
	for i := range reflect.TypeFor[Status]().NumField() {
		var one Status
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(all).Field(i))
		cases[reflect.TypeFor[Status]().Field(i).Name] = one
	}
	at, jobs := stamp{1 << 63, 2, -3, 4}, stamp{5, 1<<64 - 1, 7, -8}
	for name, want := range cases {
		before := reflect.ValueOf(want).Interface()
		gotAt, gotJobs, got, bad := readEntry(newEntry(at, jobs, &want))
		if bad || !reflect.DeepEqual(got, want) || gotAt != at || gotJobs != jobs {
			t.Errorf("%s: got %+v, %v, %v, bad %t, want %+v", name, got, gotAt, gotJobs, bad, want)
		}
		if !reflect.DeepEqual(before, want) {
			t.Errorf("%s: writing changed the status", name)
		}
	}
}

// TestDamagedEntriesAreBad: one that was cut short is never taken for another sandbox's state, and none makes msb fail.
func TestDamagedEntriesAreBad(t *testing.T) {
	t.Parallel()
	var st Status
	n := 0
	fill(t, reflect.ValueOf(&st).Elem(), &n)
	entry := newEntry(stamp{1, 2, 3, 4}, stamp{}, &st)
	for cut := range len(entry) {
		if _, _, _, bad := readEntry(entry[:cut]); !bad {
			t.Fatalf("the first %d of %d bytes are an entry", cut, len(entry))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := []byte(entry)
		for range 1 + random.IntN(4) {
			b[random.IntN(len(b))] = byte(random.Uint32())
		}
		readEntry(string(b))
	}
}

// TestDamagedIndexesAreIgnored: a byte that changed could make another sandbox's state of one.
func TestDamagedIndexesAreIgnored(t *testing.T) {
	t.Parallel()
	home := recorded(t, indexFrom)
	settle(t, home)
	want, err := home.List()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home.dir, state.IndexFile)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) string {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return newLister(home, make([]string, indexFrom)).readKept()
	}
	if read(good) == "" {
		t.Fatal("the index itself is not read")
	}
	for at := 0; at < len(good); at += 97 {
		bad := append([]byte(nil), good...)
		if bad[at] ^= 4; read(bad) != "" {
			t.Errorf("an index whose byte %d changed is read", at)
		}
		if read(good[:at]) != "" {
			t.Errorf("the first %d bytes of an index are read", at)
		}
	}
	got, err := home.List()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the list beside a damaged index differs: %v", err)
	}
}
