package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/demo"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/unpack"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

type serveFlags struct {
	listen, upstream, logs, state string
	demo, startEmpty              bool
	drain                         time.Duration
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve POLICY.yaml",
		Short: "Stand in front of a service and limit its requests",
		Long: `Serve is a reverse proxy that asks the policy about every request. What may pass
goes to the upstream unharmed (streams, uploads, WebSockets); what may not is
answered with 429, the wait, and the rule. A server of gRPC without TLS is named as
h2c://HOST:PORT.

SIGINT, SIGTERM and SIGHUP stop it: no new connections, requests under way finish within
the --drain time, those that a rule holds are told to come again. A second signal ends
it at once.

SIGUSR1 writes who is limited and who is blocked to standard error, a JSON object a
line, and how usage and limited connections fared; secrets as fingerprints.

With a state file (server.state, or --state) a restart forgets nothing: it is
read at the start and saved every minute and at a stop. A crash loses at most
the last minute. A file that is torn or another program's stops the start; with
--start-empty it is passed over, and replaced.

Exit codes: 0 stopped; 1 the policy file has errors; 2 the command line is wrong,
or the policy file, or a file that its server part names, can't be read; 3 serving
could not start or broke off.`,
		Example: `  spillgate serve limits.yaml --upstream http://127.0.0.1:9000
  spillgate serve limits.yaml --listen :80 --log json
  spillgate serve examples/quickstart.yaml --demo`,
		Args: onePolicy,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := serve(cmd.Context(), args[0], f, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "stopped")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&f.listen, "listen", "", "address to listen on (default: the policy's server.listen, else 127.0.0.1:8080)")
	cmd.Flags().StringVar(&f.upstream, "upstream", "", "URL to pass requests to; h2c:// for HTTP/2 without TLS (default: the policy's server.upstream)")
	cmd.Flags().StringVar(&f.state, "state", "", "file that keeps the counters over a restart (default: the policy's server.state, else none)")
	cmd.Flags().BoolVar(&f.startEmpty, "start-empty", false, "pass over what the state file says, and begin every limit anew")
	cmd.Flags().BoolVar(&f.demo, "demo", false, "start a small demo upstream on a free port and print what to try")
	cmd.Flags().DurationVar(&f.drain, "drain", 10*time.Second, "how long requests under way may take to finish at a stop")
	cmd.Flags().StringVar(&f.logs, "log", "text", "form of the log lines on standard error: text or json")
	return cmd
}

func serve(ctx context.Context, path string, f serveFlags, stdout, stderr io.Writer) error {
	logger, err := newLogger(f.logs, stderr)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if f.demo && f.upstream != "" {
		return &exitError{exitUsage, errors.New("--demo and --upstream exclude each other: the demo is the upstream")}
	}
	if f.drain < 0 {
		return &exitError{exitUsage, fmt.Errorf("--drain %s: must not be negative", f.drain)}
	}
	if f.listen != "" {
		if _, _, err := net.SplitHostPort(f.listen); err != nil {
			return &exitError{exitUsage, fmt.Errorf("--listen %q: want an address and a port, such as 127.0.0.1:8080 or :8080", f.listen)}
		}
	}
	file, _, err := load(path, true, stderr)
	if err != nil {
		return err
	}
	server := file.Server
	if f.listen != "" {
		server.Listen = f.listen
	}
	if f.upstream != "" {
		server.Upstream = f.upstream
	}
	if f.state != "" {
		server.State = f.state
	}
	if f.startEmpty && server.State == "" {
		return &exitError{exitUsage, errors.New("--start-empty: there is no state file to pass over; name one with --state or in the policy file (server: state: /var/lib/spillgate/state)")}
	}
	if f.demo {
		address, stop, err := startDemo()
		if err != nil {
			return &exitError{exitRunning, err}
		}
		defer stop()
		server.Upstream = "http://" + address
	}
	if server.Upstream == "" {
		return &exitError{exitUsage, errors.New("no upstream: name it in the policy file (server: upstream: http://127.0.0.1:9000), with --upstream, or use --demo")}
	}
	upstream, err := url.Parse(server.Upstream)
	if err != nil {
		// Without the text: it may hold a password.
		return &exitError{exitUsage, errors.New("upstream: want a URL such as http://127.0.0.1:9000")}
	}
	fingerprints, err := server.FingerprintKey()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	var cas *x509.CertPool // nil is those whom the system trusts
	if server.UpstreamCAFile != "" {
		if cas, err = authorities("upstream_ca_file", server.UpstreamCAFile); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	encrypted, unwatch, err := certificates(ctx, server.TLS, logger)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	defer unwatch()
	memory := spillgate.NewMemory()
	defer memory.Close()
	var store spillgate.Store = memory
	engine := append(unpack.Options(), policy.FingerprintKey(fingerprints))
	if server.Store.Shared() {
		if server.State != "" {
			return &exitError{exitUsage, errors.New("--state: what is counted is kept in the store that the policy file names, so there is none to keep here")}
		}
		shared, opts, stop, err := openStore(ctx, &server.Store, logger)
		if err != nil {
			return err
		}
		defer stop()
		store, engine = shared, append(engine, opts...)
	}
	state := &stateFile{server.State, memory, logger}
	if server.State != "" {
		if err := state.load(f.startEmpty); err != nil {
			return err
		}
	}
	eng := policy.NewEngine(file.Policy, store, engine...)
	countNodes(store, &server.Store, eng, logger)
	g, err := gateway.New(gateway.Config{
		Engine:   eng,
		Upstream: upstream, UpstreamCAs: cas,
		Client:  server.Client,
		TLS:     encrypted,
		H2C:     server.H2C,
		Headers: headers[server.Headers],
		Answers: answers(&server),
		Logger:  logger,
	})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	ln, err := net.Listen("tcp", server.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; stop the program that has it, or choose another with --listen", err)
		}
		return &exitError{exitRunning, err}
	}
	connections, err := limitConnections(ln, &server, logger)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if connections != nil {
		ln = connections
	}
	save := func() error { return nil }
	if server.State != "" { // not before: who has the address may have the file too
		if save, err = state.keeping(); err != nil {
			return &exitError{exitRunning, errors.Join(err, ln.Close())}
		}
	}
	defer logConnections(logger, connections)
	defer logTotals(logger, eng)
	defer reportOnSignal(stderr, eng, connections, logger)()
	defer watchLists(ctx, file, path, eng, logger)()
	announce(stdout, path, file, ln.Addr(), &server, f.demo)
	told := make(chan struct{})
	untold := context.AfterFunc(ctx, func() {
		defer close(told)
		logger.Info("stopping: requests under way may finish; a second signal cuts them", "drain", f.drain)
	})
	err = errors.Join(g.Serve(ctx, ln, f.drain), save())
	if !untold() {
		<-told // before what is said of the end
	}
	if err != nil {
		return &exitError{exitRunning, err}
	}
	return nil
}

// headers says in the gateway's words what a policy file says in its own.
var headers = map[policyfile.Headers]httplimit.HeaderMode{
	policyfile.HeadersOn:       httplimit.Always,
	policyfile.HeadersRefusals: httplimit.Refusals,
	policyfile.HeadersOff:      httplimit.Off,
}

// newLogger writes log lines. In both forms a time span is text, as 1.5s.
func newLogger(form string, w io.Writer) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration { // a number of nanoseconds in JSON
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	switch form {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("--log %q: want text or json", form)
}

// startDemo serves the demo upstream on a free loopback port.
func startDemo() (address string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("demo upstream: %w", err)
	}
	srv := &http.Server{Handler: demo.Handler(), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(ln) // ends with ErrServerClosed, by stop
	}()
	return ln.Addr().String(), func() { srv.Close(); <-ended }, nil
}
