package sandbox

import (
	"reflect"
	"strings"
	"testing"
)

func TestProcessesAreWhatTheGuestSays(t *testing.T) {
	t.Parallel()
	const status = "Name:\tsleep\nUmask:\t0022\nState:\tS (sleeping)\nPPid:\t7\nUid:\t1000\t1000\t1000\t1000\nVmRSS:\t     512 kB\n"
	for command, want := range map[string][]string{"sleep\x001000\x00": {"sleep", "1000"}, "": {"[sleep]"}, "a b\x00\x00c\x00": {"a b", "", "c"}} {
		got, err := parseProcess(9, status, command)
		if err != nil || !reflect.DeepEqual(got, Process{9, 7, 1000, "S", 512 << 10, want}) {
			t.Errorf("%q: %+v, %v", command, got, err)
		}
	}
	if got, err := parseProcess(9, "Name:\tx\nState:\tZ (zombie)\n", ""); err != nil || got.State != "Z" || got.Memory != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"PPid:\tx\n", "Uid:\t-1\n", "Uid:\t4294967296\n", "VmRSS:\t9999999999999999 kB\n", "PPid:"} {
		if got, err := parseProcess(9, bad, ""); err == nil || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%q: %+v, %v; want an error of ours", bad, got, err)
		}
	}
}
