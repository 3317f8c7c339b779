package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/rotate"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Status is a named sandbox as `msb ls` shows it.
type Status struct {
	Name   string            `json:"name"`
	Label  string            `json:"label,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Parent is the sandbox whose child this is, and ParentCreated when that was made.
	Parent        string    `json:"parent,omitempty"`
	ParentCreated time.Time `json:"parent_created,omitzero"`
	Running       bool      `json:"running"`
	Created       time.Time `json:"created"`
	Image         string    `json:"image"`
	Digest        string    `json:"digest"`
	CPUs          int       `json:"cpus"`
	Memory        int64     `json:"memory_bytes"`
	Disk          int64     `json:"disk_bytes"`
	// Used is what the disk takes on the host.
	Used       int64  `json:"disk_used_bytes"`
	PolicyFile string `json:"policy_file,omitempty"`
	// IdleStop and Lifetime, in nanoseconds, are as in Config.
	IdleStop time.Duration `json:"idle_stop,omitempty"`
	Lifetime time.Duration `json:"lifetime,omitempty"`
	// Ran is how much of Lifetime it has had, in nanoseconds; while it runs, to the minute.
	Ran time.Duration `json:"ran,omitempty"`
	// Directories are those of this machine that the guest sees.
	Directories []Directory `json:"directories,omitempty"`
	// Volumes are those that the guest sees.
	Volumes []Volume `json:"volumes,omitempty"`
	// Ports are those that are published.
	Ports []Port `json:"ports,omitempty"`
	// Dir is the sandbox's own directory under $MSB_HOME.
	Dir string `json:"directory"`
	// Audit and Pcap are the files of its records, Console is the log of its kernel.
	Audit   string `json:"audit"`
	Pcap    string `json:"pcap,omitempty"`
	Console string `json:"console"`
	// ParentPlaceholders are those of the sandboxes from which it was cloned: the secret's name by the placeholder.
	ParentPlaceholders map[string]string `json:"parent_placeholders,omitempty"`
	// ParentFiles are files that hold one, once they were looked for (ParentFiles of Home); MoreParentFiles says that there
	// are others.
	ParentFiles     []string `json:"parent_files,omitempty"`
	MoreParentFiles bool     `json:"more_parent_files,omitempty"`
	// Started and Info are of the run; Info comes when the guest is ready.
	Started *time.Time `json:"started,omitempty"`
	Info    *Info      `json:"info,omitempty"`
	// Paused is of Home.Pause.
	Paused bool `json:"paused,omitempty"`
	// PolicyRefused says why a change of the policy file was refused: the policy before it is in force.
	PolicyRefused string `json:"policy_refused,omitempty"`
	// Restart is the policy of `--restart`, RestartCount how often the main command was run again by it.
	Restart      string `json:"restart,omitempty"`
	RestartCount int    `json:"restart_count,omitempty"`
	// End is how the run before ended, if it was not killed.
	End *End `json:"end,omitempty"`
	// Problem says why the state can't be read; the other fields are empty then.
	Problem string `json:"problem,omitempty"`
}

// List returns the named sandboxes in the order of their names. One whose state is damaged is among them.
func (h *Home) List() ([]Status, error) {
	entries, err := os.ReadDir(filepath.Join(h.dir, state.NamedDir)) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() && CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	l := newLister(h, len(names))
	defer l.close()
	stamps := l.stamps(names)
	all := make([]Status, 0, len(names))
	for i, name := range names {
		st, err := l.status(name, stamps[i])
		if errors.Is(err, ErrNoSandbox) {
			continue // removed just now
		}
		if err != nil {
			st = &Status{Name: name, Dir: namedPath(h, name), Problem: err.Error()}
		}
		all = append(all, *st)
	}
	return all, nil
}

// Inspect tells about the sandbox of that name.
func (h *Home) Inspect(name string) (*Status, error) {
	st, err := loadStored(h, name)
	if err != nil {
		return nil, Fail(err)
	}
	dir := namedPath(h, name)
	s := &Status{
		Name: name, Label: st.Label, Labels: st.Labels, Parent: st.Parent, ParentCreated: st.ParentCreated, Created: st.Created, Image: st.Image, Digest: st.ImageDigest, CPUs: st.CPUs, Memory: st.Memory,
		Disk: st.Disk, IdleStop: st.IdleStop, Lifetime: st.Lifetime, Ran: st.Ran, PolicyFile: st.PolicyFile, Directories: st.Directories, Volumes: st.Volumes, Ports: st.Ports, Dir: dir, Used: allocated(filepath.Join(dir, state.UpperDisk)),
		ParentPlaceholders: st.ParentPlaceholders, Audit: auditLog(st, dir), Pcap: st.Pcap, Console: filepath.Join(dir, state.ConsoleLog),
	}
	if !st.Restart.None() {
		s.Restart = st.Restart.String()
	}
	if main, err := state.ReadJob(filepath.Join(dir, state.JobsDir), MainJob); err == nil {
		s.RestartCount = main.Restarts
	}
	if conn, err := state.DialControl(dir); err == nil {
		_ = conn.Close()
		var r state.RunRecord
		s.Running = true
		if state.ReadJSON(dir, state.InfoFile, &r) == nil {
			s.Started, s.Info, s.Paused, s.PolicyRefused = &r.Started, r.Info, r.Paused, r.PolicyRefused
		}
		return s, nil
	}
	var end End
	if state.ReadJSON(dir, state.EndFile, &end) == nil {
		s.End = &end
	}
	return s, nil
}

// auditLog is the file of a sandbox's verdicts.
func auditLog(st *state.Stored, dir string) string {
	return cmp.Or(st.Audit, filepath.Join(dir, state.AuditLog))
}

// Console is the log of the guest's console, of its last run.
func (h *Home) Console(name string) ([]byte, error) {
	if _, err := loadStored(h, name); err != nil {
		return nil, Fail(err)
	}
	var all []byte // two files of bounded size
	for i := 1; i >= 0; i-- {
		b, err := state.ReadOwn(rotate.Name(namedPath(h, name, state.ConsoleLog), i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, Fail(fmt.Errorf("%w: the console's log: %w", ErrState, err))
		}
		all = append(all, b...)
	}
	return all, nil
}

// Connect opens a session with the running sandbox of that name. Its Close ends the session and not the sandbox.
func (h *Home) Connect(ctx context.Context, name string) (*Sandbox, error) {
	s, err := connectNamed(ctx, h, name)
	return s, Fail(err)
}

func connectNamed(ctx context.Context, h *Home, name string) (*Sandbox, error) {
	if _, err := loadStored(h, name); err != nil {
		return nil, err
	}
	dir := namedPath(h, name)
	conn, err := state.DialControl(dir)
	if err != nil {
		return nil, notRunning(name)
	}
	st, err := loadStored(h, name)
	if err != nil { // of the sandbox behind conn, or of a later one
		return nil, errors.Join(err, conn.Close())
	}
	s := &Sandbox{
		name: name, home: h, run: &runDir{id: name, dir: dir}, over: make(chan struct{}), pcap: st.Pcap != "",
		image: &image.Image{Ref: st.Image, Digest: st.ImageDigest, Config: st.ImageConfig},
	}
	if s.client, err = agentclient.Attach(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// A sandbox that is starting answers when it is ready.
	wait := cmp.Or(h.answer, connectWait)
	var r state.RunRecord
	if state.ReadJSON(dir, state.InfoFile, &r) == nil && r.Info != nil {
		wait = min(wait, answerWait)
	}
	asked, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if _, err := s.client.Stats(asked); err != nil && !errors.Is(err, ErrPaused) {
		err = errors.Join(err, s.client.Close())
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if asked.Err() != nil {
			return nil, fmt.Errorf("%w: the supervisor of %s did not answer within %s; a process that was stopped goes on after kill -CONT, and `msb stop %s` ends it", agentclient.ErrTimeout, name, wait, name)
		}
		return nil, fmt.Errorf("%w: %s ended before it answered (%w); `msb start %s` starts it", ErrNotRunning, name, err, name)
	}
	if state.ReadJSON(dir, state.InfoFile, &r) == nil && r.Info != nil {
		s.info = *r.Info
	}
	go s.watchSession()
	return s, nil
}

// connectWait is more than a sandbox takes from its socket to its first answer.
const connectWait = state.BootTimeout + 30*time.Second

// answerWait is for one that was ready: what it takes on a machine under heavy load, and no boot.
const answerWait = 30 * time.Second

func notRunning(name string) error {
	return fmt.Errorf("%w: %s; `msb start %s` starts it", ErrNotRunning, name, name)
}

// watchSession learns of the sandbox's end by that of the session.
func (s *Sandbox) watchSession() {
	<-s.client.Done()
	s.failure = s.client.Err()
	// The supervisor writes down why before its process ends, and the socket is gone then.
	for deadline := time.Now().Add(lastWordWait); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // waits for another process's file
		var end End
		if _, err := os.Lstat(s.run.dir); errors.Is(err, fs.ErrNotExist) {
			break // removed, and with it the reason
		}
		if conn, err := state.DialControl(s.run.dir); err == nil {
			_ = conn.Close()
			if errors.Is(s.failure, agentclient.ErrClosed) {
				break // by us: the sandbox lives on
			}
			continue
		}
		if state.ReadJSON(s.run.dir, state.EndFile, &end) == nil {
			s.failure = fmt.Errorf("%w: %s was stopped meanwhile, or its guest shut down; `msb start %s` starts it", ErrNotRunning, s.name, s.name)
			if end.Message != "" {
				s.failure = state.FailAs(end.Kind, errors.New(end.Message))
			}
			break
		}
	}
	close(s.over)
}

// Stop ends the run of the named sandbox: its guest writes back what it holds, and leaves. ErrNotRunning if there is
// no run. Inspect reports what the run could not record.
func (h *Home) Stop(ctx context.Context, name string) error { return Fail(stopNamed(ctx, h, name)) }

func stopNamed(ctx context.Context, h *Home, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := checkRealDir(h, name); err != nil {
		return err
	}
	var r state.RunRecord
	conn, err := state.DialControl(namedPath(h, name))
	if err == nil && !h.made.IsZero() {
		if _, err := loadStored(h, name); err != nil { // of the sandbox behind conn, or of a later one
			return errors.Join(err, conn.Close())
		}
	}
	if err == nil {
		ready := state.ReadJSON(namedPath(h, name), state.InfoFile, &r) == nil && r.Info != nil
		if err := state.EndPeer(ctx, conn, state.StopWait); err != nil {
			return err // one that was killed wrote nothing down
		}
		if ready { // it closes its connections before it ends, so that two who stop it may find it gone too early
			if err := r.Supervisor.Gone(state.StopWait); err != nil {
				return err
			}
		}
		return checkEnd(h, name, ready && !r.AutoRemove)
	}
	if run, err := lockNamed(h, name); !errors.Is(err, ErrRunning) || state.ReadJSON(namedPath(h, name), state.InfoFile, &r) != nil {
		if run != nil {
			_ = run.lock.Close()
		}
		return notRunning(name)
	}
	if !h.made.IsZero() {
		if _, err := loadStored(h, name); err != nil { // of the sandbox whose record that is, or of a later one
			return err
		}
	}
	return r.Supervisor.End(ctx, state.StopWait) // somebody removed the socket under it
}

// checkEnd looks whether a run that was ready wrote down how it ended, which the next start and msb ls tell of.
func checkEnd(h *Home, name string, ready bool) error {
	var end End
	if err := state.ReadJSON(namedPath(h, name), state.EndFile, &end); ready && err != nil {
		return fmt.Errorf("sandbox %s ended; how it ended could not be recorded in %s, which is full or can't be written to: %w", name, namedPath(h, name), err)
	}
	return nil
}

// missing says that there is no sandbox of that name; err is why its directory can't be looked at.
func missing(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: %s; `msb ls` lists those there are", ErrNoSandbox, name)
}
