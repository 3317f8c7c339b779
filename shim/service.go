package shim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	eventstypes "github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/protobuf"
	containerdshim "github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// now is the time of an end that the guest doesn't tell.
func now() time.Time { return time.Now() }

// service is containerd's task API for the containers of one pod. Calls are in calls.go.
type service struct {
	ctx       context.Context //nolint:containedctx // of the shim: what outlives a call is bounded by it
	namespace string
	publisher containerdshim.Publisher
	stop      shutdown.Service
	boot      bootFunc
	events    chan any
	obeyWait  time.Duration
	address   string // of the shim's socket; "" for none

	watching sync.WaitGroup // processes that run
	creating sync.Mutex     // one container is made at a time: the first one's makes the pod
	mu       sync.Mutex
	pod      *pod
	tasks    map[string]*task
}

var (
	_ taskapi.TTRPCTaskService    = (*service)(nil)
	_ containerdshim.TTRPCService = (*service)(nil)
)

// eventQueue is how many events may wait for containerd.
const eventQueue = 128

func newService(ctx context.Context, publisher containerdshim.Publisher, stop shutdown.Service, boot bootFunc) *service {
	ctx = context.WithoutCancel(ctx)
	namespace, _ := namespaces.Namespace(ctx)
	s := &service{
		ctx: ctx, namespace: namespace, publisher: publisher, stop: stop, boot: boot,
		events: make(chan any, eventQueue), tasks: map[string]*task{}, obeyWait: obeyWait,
	}
	stop.RegisterCallback(func(context.Context) error {
		defer s.watching.Wait()
		return s.currentPod().close()
	})
	go s.publish(ctx)
	return s
}

// RegisterTTRPC implements shim.TTRPCService.
func (s *service) RegisterTTRPC(server *ttrpc.Server) error {
	taskapi.RegisterTTRPCTaskService(server, s)
	return nil
}

// send queues an event; containerd gets them in this order.
func (s *service) send(event any) {
	select {
	case s.events <- event:
	case <-s.stop.Done():
	}
}

// publish sends what is queued, to the end.
func (s *service) publish(ctx context.Context) {
	defer func() { _ = s.publisher.Close() }()
	one := func(event any) {
		if err := s.publisher.Publish(ctx, runtime.GetTopic(event), event); err != nil {
			log.G(ctx).WithError(err).Error("event not published")
		}
	}
	for {
		select {
		case event := <-s.events:
			one(event)
		case <-s.stop.Done():
			for {
				select {
				case event := <-s.events:
					one(event)
				default:
					return
				}
			}
		}
	}
}

func (s *service) currentPod() *pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pod
}

// task finds a container.
func (s *service) task(id string) (*task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tasks[id]; t != nil {
		return t, nil
	}
	return nil, errNotFound("no container " + id)
}

// process finds a process of a container.
func (s *service) process(id, execID string) (*task, *process, error) {
	t, err := s.task(id)
	if err != nil {
		return nil, nil, err
	}
	p, err := t.find(execID)
	return t, p, err
}

// create makes a container, and the pod's machine before the first one. What it has made is undone if it fails.
func (s *service) create(ctx context.Context, r *taskapi.CreateTaskRequest) (err error) {
	s.creating.Lock()
	defer s.creating.Unlock()
	if _, err := s.task(r.ID); err == nil {
		return withKind("the container "+r.ID+" is there already", errdefs.ErrAlreadyExists)
	}
	if r.Checkpoint != "" || r.ParentCheckpoint != "" {
		return withKind("a checkpoint can't be restored; leave it out", errdefs.ErrNotImplemented)
	}
	settings, err := loadSettings(r.Options)
	if err != nil {
		return err
	}
	spec, err := readSpec(r.Bundle)
	if err != nil {
		return err
	}
	var undo []func() error
	defer func() {
		for _, f := range slices.Backward(undo) {
			if err != nil {
				err = errors.Join(err, f())
			}
		}
	}()
	t := &task{
		id: r.ID, bundle: r.Bundle, kill: make(chan uint32, 1), execs: map[string]*process{}, removed: make(chan struct{}),
		init: newProcess("", streams{r.Stdin, r.Stdout, r.Stderr, r.Terminal}),
	}
	p := s.currentPod()
	isPod := spec.Annotations[annotationType] == typeSandbox
	hostname := ""
	if p != nil {
		hostname = p.hostname
	}
	// What can't be honoured is reported before anything is made.
	if _, err := containerOf(r.ID, "", hostname, spec, settings); err != nil {
		return err
	}
	t.left.Home = settings.Home
	if p == nil {
		if t.left.Group, err = groupOf(spec); err != nil {
			return err
		}
		t.left.Booting = true
		if err := t.left.write(r.Bundle); err != nil { // for a shim that is killed while the machine boots
			return err
		}
		if p, err = bootPod(ctx, s.boot, r.ID, spec, settings, t.left.Group); err != nil {
			t.left.Booting = false // and nothing of it is left
			return errors.Join(err, t.left.write(r.Bundle))
		}
		p.obeyWait = s.obeyWait
		undo = append(undo, p.close)
		t.left.Machine, t.left.Booting = p.dir, false
	}
	if err := t.left.write(r.Bundle); err != nil {
		return err
	}
	if !isPod { // of the pod itself, the image (pause) isn't run
		cfg, err := containerOf(r.ID, "", hostname, p.visible(spec), settings)
		for i := range cfg.Mounts {
			err = errors.Join(err, p.inMemory(&cfg.Mounts[i]))
		}
		if err == nil {
			err = p.admits(cfg.Mounts, filepath.Dir(r.Bundle))
		}
		if err != nil {
			return err
		}
		cfg.Sysctls = p.withSysctls(cfg.Sysctls)
		if cfg.Root, err = mountRoot(r.Bundle, mountsOf(r.Rootfs)); err != nil {
			return err
		}
		undo = append(undo, func() error { return unmountRoot(r.Bundle) })
		if t.c, err = p.machine.Add(ctx, cfg); err != nil {
			return fmt.Errorf("msb: %w", err)
		}
		if err := p.oomScore(cfg.Process.OOMScoreAdj); err != nil {
			return errors.Join(fmt.Errorf("msb: the OOM score of the pod's processes: %w", err), t.c.Delete(ctx))
		}
	}
	s.mu.Lock()
	first := s.pod == nil
	s.pod, s.tasks[r.ID] = p, t
	s.mu.Unlock()
	s.send(&eventstypes.TaskCreate{
		ContainerID: r.ID, Bundle: r.Bundle, Rootfs: r.Rootfs, Pid: pid(),
		IO: &eventstypes.TaskIO{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
	})
	if first {
		go s.watch(p)
	}
	return nil
}

// containerd may write to its disk each time that it is told that a container lacks memory: oomBurst times in oomEvery.
const (
	oomEvery = 10 * time.Second
	oomBurst = 16
)

// watch tells containerd of processes that the guest's kernel killed for lack of memory. Which container it was is the guest's word,
// which counts for those of its own pod alone: containerd takes any container of the node.
func (s *service) watch(p *pod) {
	err := p.machine.Watch(s.ctx, func(e sandbox.ContainerEvent) {
		t, err := s.task(e.ID)
		if err != nil || t.c == nil || e.OOMKills <= t.oomKills { // the first event has the count so far
			return
		}
		if len(s.events) > eventQueue/2 { // containerd is away; the rest is for what it has to know
			return
		}
		if at := now(); at.Sub(t.oomSince) > oomEvery {
			t.oomSince, t.oomTold = at, 0
		}
		if t.oomTold == oomBurst {
			return
		}
		t.oomKills, t.oomTold = e.OOMKills, t.oomTold+1
		s.send(&eventstypes.TaskOOM{ContainerID: e.ID})
	})
	if err != nil {
		log.G(s.ctx).WithError(err).Debug("the machine's events ended")
	}
}

// start starts a process and watches it.
func (s *service) start(ctx context.Context, t *task, p *process) error {
	pod := s.currentPod()
	if err := t.begin(p); err != nil {
		return err
	}
	if err := t.run(ctx, s.namespace, p); err != nil {
		var failed *sandbox.ContainerStartError
		exit := leftExit{killed, now()}
		if errors.As(err, &failed) {
			exit.Status = uint32(failed.Code)
		}
		t.end(p, exit)
		return fmt.Errorf("msb: %w", err)
	}
	if p.execID == "" {
		s.send(&eventstypes.TaskStart{ContainerID: t.id, Pid: pid()})
	} else {
		s.send(&eventstypes.TaskExecStarted{ContainerID: t.id, ExecID: p.execID, Pid: pid()})
	}
	s.watching.Go(func() {
		exit := t.await(s.ctx, pod.machine, p)
		s.ended(pod, t, p, exit)
	})
	return nil
}

// ended tells of the end of a process. That of a container's first one is its last event: its execs have ended with it, and
// are waited for.
func (s *service) ended(pod *pod, t *task, p *process, exit leftExit) {
	if p.execID == "" {
		t.mu.Lock()
		t.gone = true
		for _, x := range t.execs { // which have ended with it, but for outputs that nobody reads any more
			if x.io != nil && !x.over() {
				x.dropAfterKill(x.io)
			}
		}
		t.mu.Unlock()
		t.live.Wait()
		left := t.left
		left.Exited = &exit
		if err := left.write(t.bundle); err != nil {
			log.G(s.ctx).WithError(err).Error("the exit status is not recorded")
		}
	}
	id := p.execID
	if id == "" {
		id = t.id
	}
	t.settle(p, exit, func() {
		s.send(&eventstypes.TaskExit{ContainerID: t.id, ID: id, Pid: pid(), ExitStatus: exit.Status, ExitedAt: protobuf.ToTimestamp(exit.At)})
	})
	if p.execID != "" {
		t.live.Done()
	} else if t.c == nil || pod.alone { // the machine ends with the task that stands for the pod, or with a container that is alone
		if err := pod.close(); err != nil {
			log.G(s.ctx).WithError(err).Error("the machine did not end well")
		}
	}
}

// remove deletes a container that doesn't run, and the machine after the last one.
func (s *service) remove(ctx context.Context, t *task) error {
	s.creating.Lock()
	defer s.creating.Unlock()
	pod := s.currentPod()
	s.mu.Lock()
	others := slices.DeleteFunc(slices.Collect(maps.Keys(s.tasks)), func(id string) bool { return id == t.id })
	s.mu.Unlock()
	var err error
	switch {
	case len(others) == 0: // with all that is of the container
		err = pod.close()
	case t.c != nil:
		t.removing.Do(func() { pod.endUnless(t.removed) })
		if err = t.c.Delete(ctx); pod.over() {
			err = pod.close()
		}
		if err == nil {
			t.removal.Do(func() { close(t.removed) })
		}
	}
	if err = errors.Join(err, unmountRoot(t.bundle)); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.tasks, t.id)
	s.mu.Unlock()
	return nil
}

// pid is what containerd shows as a container's: the shim's, since the container's are the guest's.
func pid() uint32 { return uint32(os.Getpid()) }

// signal sends a signal; one that ends a process which wasn't started settles it.
func (s *service) signal(ctx context.Context, t *task, p *process, sig agentclient.Signal, all bool) error {
	t.mu.Lock()
	idle := !p.started && !p.over()
	if idle {
		p.started = true
	}
	t.mu.Unlock()
	if !idle {
		pod := s.currentPod()
		if sig == agentclient.SIGKILL {
			s.insist(pod, t, p)
		}
		err := t.signal(ctx, p, sig, all)
		if err != nil && pod.over() {
			err = errOver // by the end of its machine
		}
		return err
	}
	if p.execID != "" {
		t.mu.Lock()
		t.live.Add(1)
		t.mu.Unlock()
	}
	s.ended(s.currentPod(), t, p, leftExit{128 + uint32(sig), now()})
	return nil
}

// insist ends the machine of a container whose first process doesn't end after a SIGKILL, and gives up on an exec that doesn't.
func (s *service) insist(pod *pod, t *task, p *process) {
	p.insist.Do(func() {
		if t.c != nil && p.execID == "" {
			pod.endUnless(p.exited)
		} else if t.c != nil {
			after(s.obeyWait, p.exited, func() { close(p.lost) })
		}
	})
}
