package supervisor

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestExecutedAgain is a supervisor that has closed the descriptors that its environment names, executes this program
// again, and is the program then.
func TestExecutedAgain(t *testing.T) {
	const variable = "MSB_TEST_EXECUTED_AGAIN"
	closed, is := os.LookupEnv(variable)
	switch {
	case !is:
		everyClosed(t, variable)
	case closed == "again":
		plan, err := io.ReadAll(os.NewFile(state.PlanFD, "plan"))
		fmt.Printf("plan %s %v", plan, err)
		for _, fd := range []int{state.StatusFD, state.ControlFD} {
			path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			fmt.Printf(" %s %v", path, err)
		}
		lock, err := io.ReadAll(os.NewFile(state.LockFD, "lock"))
		fmt.Printf(" %s %v.", lock, err)
	default:
		for _, fd := range strings.Fields(closed) {
			n, err := strconv.Atoi(fd)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Close(n); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(variable, "again")
		t.Fatal(executeAgain([]byte("of the next machine")))
	}
}

// everyClosed executes a process again with each of the descriptors of its start open, and closed, as it is when a file
// that has that number was let go: the next machine has its plan in any case.
func everyClosed(t *testing.T, variable string) {
	t.Parallel()
	all := []int{state.StatusFD, state.ControlFD}
	for closed := range 1 << len(all) {
		var names []string
		for i, fd := range all {
			if closed>>i&1 != 0 {
				names = append(names, strconv.Itoa(fd))
			}
		}
		var files []*os.File
		for _, text := range []string{"old plan", "status", "control", "lock"} {
			f, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(text); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExecutedAgain$")
		cmd.Env = append(os.Environ(), variable+"="+strings.Join(names, " "))
		cmd.ExtraFiles = files
		out, err := cmd.CombinedOutput()
		const want = "plan of the next machine <nil> /dev/null <nil> /dev/null <nil> lock <nil>."
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("with %v closed: %q, %v; want %q", names, out, err, want)
		}
		for _, f := range files {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
