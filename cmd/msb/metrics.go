package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/sandbox/metrics"
)

func newMetricsCommand(ui *ui) *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "metrics [flags]",
		Short: "Give the figures of all sandboxes that run as OpenMetrics, once or to Prometheus",
		Long: `Prints the figures of all sandboxes that run in the format OpenMetrics. With --listen it
serves them under /metrics until a signal ends it: on 127.0.0.1 if no address is given. Who
can reach another address reads the names of your sandboxes and what they use.
docs/metrics.md lists the figures; docs/grafana.json is a dashboard of them.`,
		Example: `  msb metrics
  msb metrics --listen 9464                # http://127.0.0.1:9464/metrics`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				if listen == "" {
					return metrics.Write(ui.out, home)
				}
				at, err := metrics.ParseListen(listen)
				if err != nil {
					return &usageError{err: err, help: "msb metrics --help"}
				}
				var config net.ListenConfig
				lis, err := config.Listen(ctx, "tcp", at.String())
				if err != nil {
					return fmt.Errorf("--listen: %w; take another port, 0 for any", err)
				}
				ui.note("serving http://%s/metrics", lis.Addr())
				return serveMetrics(ctx, lis, metrics.Handler(home))
			})
		},
	}
	c.Flags().StringVar(&listen, "listen", "", "serve the figures at this `[ADDRESS:]PORT`; without an address on 127.0.0.1")
	return c
}

// maxScrapers is how many connections are served at once.
const maxScrapers = 64

// serveMetrics serves until ctx ends.
func serveMetrics(ctx context.Context, lis net.Listener, h http.Handler) error {
	const request, idle = 10 * time.Second, 2 * time.Minute
	srv := &http.Server{Handler: h, ReadTimeout: request, IdleTimeout: idle, WriteTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err := srv.Serve(netutil.LimitListener(lis, maxScrapers))
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return ctx.Err()
	}
	return err
}
