// Command spillgate is the rate-limiting gateway and its tools, in one binary.
// `spillgate --help` teaches it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK      = 0 // done
	exitPolicy  = 1 // the policy file has errors, or one of its tests failed
	exitUsage   = 2 // the command line is wrong, or a file can't be read
	exitRunning = 3 // serving could not start, or broke off
)

// An exitError carries the code that the process ends with.
type exitError struct {
	code int
	err  error // nil if all was said already
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs one command line and returns the exit code. SIGINT, SIGTERM and SIGHUP end
// it cleanly; a second one ends the process, as if nobody listened.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	root := &cobra.Command{
		Use:   "spillgate",
		Short: "A rate limiter in front of your service that says who, why and until when",
		Long: `Spillgate decides for every request whether it may pass now, and says exactly
why not and when to come back. One policy file holds the rules.

  spillgate check limits.yaml      say what the rules mean, or what is wrong
  spillgate test limits.yaml       play the tests in the file
  spillgate explain limits.yaml    say which rules apply to a request, and why
  spillgate serve limits.yaml      stand in front of your service and limit

Exit codes: 0 done; 1 the policy file has errors, or a test in it failed; 2 the
command line is wrong or a file can't be read; 3 serving could not start or broke
off.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("spillgate {{.Version}}\n")
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serveCommand(), checkCommand(), testCommand(), explainCommand(), schemaCommand(), versionCommand())
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) { // cobra's: the command line
		fmt.Fprintf(stderr, "spillgate: %s\nTry: spillgate --help\n", strings.TrimRight(err.Error(), "\n"))
		return exitUsage
	}
	if exit.err != nil {
		fmt.Fprintf(stderr, "spillgate: %v\n", exit.err)
	}
	return exit.code
}
