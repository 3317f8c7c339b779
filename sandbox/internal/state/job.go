package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/joblog"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/owned"
)

// The errors about jobs, for errors.Is.
var (
	ErrJobName    = agentclient.ErrJobName
	ErrJobExists  = agentclient.ErrJobExists
	ErrNoJob      = agentclient.ErrNoJob
	ErrJobRunning = agentclient.ErrJobRunning
	ErrJobEnded   = agentclient.ErrJobEnded
	ErrJobLimit   = agentclient.ErrJobLimit
	ErrJobFiles   = agentclient.ErrJobFiles
	ErrJobInput   = agentclient.ErrJobInput
)

// NotStartedError says that a job's program could not be started.
type NotStartedError = agentclient.NotStartedError

// CheckJobName says whether a job may have this name: it is part of the names of files (invariant 14).
func CheckJobName(name string) error {
	if CheckName(name) != nil {
		const shown = 80
		return fmt.Errorf("%w %.*q: use 1 to %d lower-case letters, digits and hyphens, such as build-1", ErrJobName, shown, name, MaxNameLen)
	}
	return nil
}

// ErrJobLost means that a job that was waited for has no exit status: its sandbox ended under it.
var ErrJobLost = errors.New("the job is lost")

// MainJob is the name of the job that `msb run -d` makes of the command: `msb logs` shows its output.
const MainJob = "main"

// JobState is what has become of a job.
type JobState string

// The states of a job. All but JobRunning are final.
const (
	JobRunning JobState = "running"
	// JobExited means that the process ended by itself: JobStatus.Code.
	JobExited JobState = "exited"
	// JobKilled means that a signal ended it: JobStatus.Signal.
	JobKilled JobState = "killed"
	// JobLost means that the sandbox ended under the process. Its output to that point is there.
	JobLost JobState = "lost"
	// JobDamaged means that the job's file can't be read: JobStatus.Reason. Only lists have it.
	JobDamaged JobState = "damaged"
)

// JobStatus is a job as `msb job ls` shows it.
type JobStatus struct {
	Name string `json:"name"`
	// Command is what was asked to run. A long one is cut off.
	Command []string   `json:"command"`
	State   JobState   `json:"state"`
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended,omitempty"` // nil also of a job whose supervisor was killed
	// Code is the exit code: 128 + Signal when a signal ended the process.
	Code      int  `json:"exit_code"`
	Signal    int  `json:"signal,omitempty"`
	TimedOut  bool `json:"timed_out,omitempty"`
	OOMKilled bool `json:"oom_killed,omitempty"`
	// OutputBytes is how much it wrote, LostBytes how much of that the host's disk had no room for. Known at the end.
	OutputBytes int64 `json:"output_bytes,omitempty"`
	LostBytes   int64 `json:"lost_bytes,omitempty"`
	// TTY and Input tell that it has a terminal, and standard input for Job.Write.
	TTY   bool `json:"tty,omitempty"`
	Input bool `json:"stdin,omitempty"`
	// Restarts is how often the main command was run again by itself.
	Restarts int `json:"restarts,omitempty"`
	// Reason says why a job is lost or damaged.
	Reason string `json:"reason,omitempty"`
}

// StoredJob is a job's file.
type StoredJob struct {
	JobStatus
	// Supervisor is the process whose end ends the job.
	Supervisor ProcessID `json:"supervisor"`
}

const (
	// JobsDir is in the directory of a sandbox.
	JobsDir = "jobs"
	jobFile = ".json"

	// JobFileBytes is the size of a job's file. It is written in full at the start, so that the end can be written over it on
	// a disk that has become full.
	JobFileBytes = 4 << 10
	// MaxShownCommand and maxShownReason bound what is kept of a command and of the guest's words about its end, in bytes of
	// JSON: the rest of the file needs less than 512 bytes.
	MaxShownCommand = 3 << 10
	maxShownReason  = 512
)

// jobFileName is what keepJob and renameio make in jobsDir, beside the logs.
var jobFileName = lazyregexp.New(`^([a-z0-9-]+\.json|\.[a-z0-9-]+\.json[0-9]+)$`)

// jobsForm is the form of jobsDir.
var jobsForm = owned.Files(func(name string) bool { return jobFileName.MatchString(name) || joblog.IsSegment(name) })

// withJobs is the form of a sandbox's directory, whose files have the form inner.
func withJobs(inner owned.Form) owned.Form {
	return func(name string, mode fs.FileMode) (owned.Form, bool) {
		if name == JobsDir {
			return jobsForm, mode == fs.ModeDir
		}
		return inner(name, mode)
	}
}

// ShownCommand is as much of a command as a job's file holds.
func ShownCommand(argv []string) []string {
	const cut = "…"
	var shown []string
	for _, arg := range argv {
		for arg != "" && encodedLen(append(shown, arg)) > MaxShownCommand {
			arg = strings.ToValidUTF8(arg[:len(arg)/2], "")
		}
		if encodedLen(append(shown, arg, cut)) > MaxShownCommand {
			return append(shown, cut)
		}
		shown = append(shown, arg)
	}
	return shown
}

// ShownReason is as much of an error as a job's file holds. It counts encoded bytes: JSON has six for a "<" of the guest's,
// and a file that is too long is not written, so that the job would seem to run for ever.
func ShownReason(err error) string { return ShownText(err.Error()) }

// ShownText is ShownReason of a sentence.
func ShownText(text string) string {
	text = strings.ToValidUTF8(fmt.Sprintf("%.*s", maxShownReason, text), "")
	for encodedLen(text) > maxShownReason {
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-last]
	}
	return text
}

func encodedLen(v any) int {
	b, _ := json.Marshal(v) // strings can be encoded
	return len(b)
}

// encode fills the file with spaces to its fixed size.
func (j *StoredJob) encode() ([]byte, error) {
	b, err := json.Marshal(j)
	if err == nil && len(b) >= JobFileBytes {
		err = fmt.Errorf("%w: %d bytes about job %s", ErrJobFiles, len(b), j.Name)
	}
	if err != nil {
		return nil, err
	}
	return append(append(b, bytes.Repeat([]byte{' '}, JobFileBytes-1-len(b))...), '\n'), nil
}

func JobPath(dir, name string) string { return filepath.Join(dir, name+jobFile) }

// Create writes the file of a job that starts.
func (j *StoredJob) Create(dir string) error {
	b, err := j.encode()
	if err != nil {
		return err
	}
	return renameio.WriteFile(JobPath(dir, j.Name), b, 0o600, renameio.WithStaticPermissions(0o600))
}

// Update writes over the file, which needs no further room on the disk.
func (j *StoredJob) Update(dir string) error {
	b, err := j.encode()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(JobPath(dir, j.Name), os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}

// ReadJob reads a job's file, whoever wrote it.
func ReadJob(dir, name string) (*StoredJob, error) {
	const tries = 3 // a reader may see half of an update
	var bad error
	for range tries {
		b, err := ReadOwn(JobPath(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, noJob(dir, name)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrState, err)
		}
		j := new(StoredJob)
		if bad = json.Unmarshal(b, j); bad == nil && j.Name == name {
			return j, nil
		}
		bad = errors.Join(bad, fmt.Errorf("it is of a job named %.80q", j.Name))
	}
	return nil, fmt.Errorf("%w: %s: %w; remove the job", ErrState, JobPath(dir, name), bad)
}

// LastStatus is what the file of a removed job said last. It was opened before the removal.
func LastStatus(f *os.File) (*StoredJob, error) {
	j := new(StoredJob)
	return j, json.NewDecoder(io.NewSectionReader(f, 0, JobFileBytes)).Decode(j)
}

// noJob names the sandbox too, whose directory holds that of its jobs.
func noJob(dir, name string) error {
	return fmt.Errorf("%w: %s; `msb job ls %s` lists those there are", ErrNoJob, name, filepath.Base(filepath.Dir(dir)))
}

// SupervisorKilled is why a job is lost whose supervisor wrote no end.
const SupervisorKilled = "the sandbox's supervisor was killed"

// Current is the job as it is now: one that nobody supervises any longer is lost.
func (j *StoredJob) Current() JobStatus {
	st := j.JobStatus
	if st.State == JobRunning && j.Supervisor.over() {
		st.State, st.Reason = JobLost, SupervisorKilled
	}
	return st
}

// ListJobs are the names of the jobs in a directory, in order. A missing directory has none.
func ListJobs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), jobFile); ok && CheckName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// RemoveJobs deletes all jobs of a sandbox that doesn't run.
func RemoveJobs(dir string) error {
	names, err := ListJobs(dir)
	for _, name := range names {
		err = errors.Join(err, RemoveJob(dir, name))
	}
	return err
}

// RemoveJob deletes a job's output, then its file: what a kill or an error leaves between the two can be removed again.
func RemoveJob(dir, name string) error {
	if err := joblog.Remove(dir, name); err != nil {
		return err
	}
	return UnlessGone(os.Remove(JobPath(dir, name)))
}

// AnotherJob says that a job was removed and made again under its name.
func AnotherJob(name string) error {
	return fmt.Errorf("%w: %s: it was removed, and another job has its name", ErrNoJob, name)
}
