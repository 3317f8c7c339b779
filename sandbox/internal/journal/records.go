package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress/learn"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/internal/rotate"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// RecordFiles names what is written down of a sandbox; "" leaves a record out.
type RecordFiles struct {
	// Audit gets every verdict, a JSON object a line; Pcap every frame, as pcapng; Learn, at the end,
	// the smallest policy that would have allowed what was seen.
	Audit, Pcap, Learn string
	PcapOptions        state.PcapOptions
	// Labels are on every line of Audit.
	Labels map[string]string
	// Resume says that a capture that is there is an earlier part of this recording.
	Resume bool
}

// Records are the open files of RecordFiles. Close writes them out.
type Records struct {
	files   RecordFiles
	log     *audit.Log
	learned *learn.Collector
	// learnInto is the file of learned.
	learnInto *os.File
	capture   *gateway.CaptureTap
	sink      audit.Sink

	mu      sync.Mutex
	on      bool // frames are being written
	resumed bool // there was a part of the capture before
	err     error
}

// OpenRecords opens the files. Whatever can't be written is an error before anything runs.
func OpenRecords(files RecordFiles) (*Records, error) {
	r := &Records{files: files}
	var sinks []audit.Sink
	if files.Audit != "" {
		log, err := audit.OpenLog(files.Audit, audit.Options{Labels: files.Labels})
		if err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		r.log = log
		sinks = append(sinks, log)
	}
	if files.Learn != "" {
		f, err := rotate.OpenNow(files.Learn, os.O_WRONLY)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("file to learn into: %w", err), r.Close(nil))
		}
		r.learnInto, r.learned = f, learn.New()
		sinks = append(sinks, r.learned)
	}
	if files.Pcap != "" {
		if err := r.openCapture(); err != nil {
			return nil, errors.Join(err, r.Close(nil))
		}
	}
	r.sink = audit.Tee(sinks...)
	return r, nil
}

// openCapture starts the capture, or, where it is to begin later, sees whether it could. Before it begins, what is there
// stays as it is; a file that is not there becomes an empty capture.
func (r *Records) openCapture() error {
	r.capture, r.resumed = gateway.NewCaptureTap(), r.files.Resume
	if info, err := os.Stat(r.files.Pcap); r.files.PcapOptions.Off && err == nil && info.Size() > 0 {
		return capture.Check(r.files.Pcap)
	}
	if err := r.switchCapture(true); err != nil || !r.files.PcapOptions.Off {
		return err
	}
	err := r.switchCapture(false)
	r.resumed = r.files.Resume
	return err
}

// Sink takes the verdicts.
func (r *Records) Sink() audit.Sink { return r.sink }

// Record takes what may only come about once its line is written. Without an audit log there is no line.
func (r *Records) Record(e audit.Event) error {
	if r.log == nil {
		r.sink.Emit(e)
		return nil
	}
	return r.log.Write(e)
}

// Capture takes the frames; nil when none are wanted.
func (r *Records) Capture() *gateway.CaptureTap { return r.capture }

// ErrNoCapture says that there is no file to capture into.
var ErrNoCapture = errors.New("no file was named for a capture; run or create with --pcap FILE, and with --pcap-off to begin without")

// SwitchCapture turns the capture on or off. Each part is a capture of its own: the file of the part before
// is rotated away, as one that is full. Close returns an error too.
func (r *Records) SwitchCapture(on bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.switchCapture(on)
	r.err = errors.Join(r.err, err)
	return err
}

func (r *Records) switchCapture(on bool) error {
	switch {
	case r.capture == nil:
		return ErrNoCapture
	case on == r.on:
		return nil
	case !on:
		r.on = false
		return r.capture.Start(nil).Close()
	}
	o := r.files.PcapOptions
	w, err := capture.Create(r.files.Pcap, capture.Options{
		MaxBytes: o.MaxBytes, MaxAge: o.MaxAge, Keep: o.Keep, Resume: r.resumed,
	})
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	r.capture.Start(w)
	r.on, r.resumed = true, true
	return nil
}

// Close writes everything out. The policy is what Learn starts from; with nil nothing is learned.
func (r *Records) Close(p *policies.Policy) error {
	var errs []error
	if r.capture != nil {
		_ = r.SwitchCapture(false)
		errs = append(errs, r.err)
	}
	if r.learned != nil && p != nil {
		errs = append(errs, r.writeLearned(r.learned.Policy(p)))
	}
	if r.learnInto != nil {
		_ = r.learnInto.Close() // what was written is there, or told
	}
	if r.log != nil {
		errs = append(errs, r.log.Close())
	}
	return errors.Join(errs...)
}

// learnWait bounds how long the end of a sandbox waits for the reader of a pipe that it learned into.
const learnWait = 5 * time.Second

// writeLearned puts a learned policy in place of the file that was there, which stays if it can't be written. What is no
// regular file is written to as it is.
func (r *Records) writeLearned(b []byte) error {
	if info, err := r.learnInto.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = r.learnInto.SetWriteDeadline(time.Now().Add(learnWait)) // a device has none
		_, err := r.learnInto.Write(b)
		return err
	}
	path, err := filepath.EvalSymlinks(r.files.Learn)
	if err != nil { // it was removed meanwhile
		path = r.files.Learn
	}
	return renameio.WriteFile(path, b, 0o600)
}
