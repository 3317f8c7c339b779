package audit

// Tee returns a Sink that gives each event to every one of sinks, in order.
func Tee(sinks ...Sink) Sink { return tee(sinks) }

type tee []Sink

var _ Sink = tee(nil)

// Emit implements Sink.
func (t tee) Emit(e Event) {
	for _, s := range t {
		s.Emit(e)
	}
}
