package secretproxy

import (
	"io"
	"log"
	"runtime"
	"strings"
	"sync"
)

// quietMu guards the process' standard logger, which is one.
var quietMu sync.Mutex

// quietLibraries keeps what net/http and its relatives say out of the process' standard logger: they offer no other
// way, and their lines hold bytes of requests and answers (attack: a server that answers HEAD with a body, which
// "Unsolicited response received" then quotes, a value in it; GODEBUG=http2debug=2). What others log goes through.
func quietLibraries() {
	quietMu.Lock()
	defer quietMu.Unlock()
	if _, ok := log.Writer().(*quietWriter); !ok {
		log.SetOutput(&quietWriter{log.Writer()})
	}
}

// quietWriter drops lines by who wrote them.
type quietWriter struct{ next io.Writer }

// Write implements io.Writer.
func (w *quietWriter) Write(p []byte) (int, error) {
	var callers [16]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "log.") {
			if speaksOfTraffic(frame.Function) {
				return len(p), nil
			}
			return w.next.Write(p)
		}
		if !more {
			return w.next.Write(p)
		}
	}
}

// speaksOfTraffic reports whether a function is of a package through which requests and answers go.
func speaksOfTraffic(function string) bool {
	for _, prefix := range []string{"net/http", "golang.org/x/net/"} { // goproxy and grpc have loggers of their own
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// quiet is goproxy's logger: its lines would hold URLs and headers.
type quiet struct{}

// Printf implements goproxy.Logger.
func (quiet) Printf(string, ...any) {}
