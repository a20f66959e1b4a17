//go:build linux

// Command leftovers runs a command, as in `leftovers make test`, and fails if
// that leaves anything behind: a process, however it detached itself, a file
// that git would show, or a temporary file.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// grace is how long a process may take to end by itself after the command,
// such as the go command's own upload helper.
const grace = 5 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: leftovers COMMAND [ARG...]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "leftovers:", err)
		os.Exit(1)
	}
	fmt.Println("leftovers: none")
}

func run(name string, args []string) (err error) {
	if err := adoptOrphans(); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "leftovers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	before, err := gitStatus()
	if err != nil {
		return err
	}

	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return errors.Join(processes(), changes(before), temporary(temp))
}

// adoptOrphans makes this process the parent of every descendant that loses
// its own, so that a daemon can't slip away (prctl(2), PR_SET_CHILD_SUBREAPER).
func adoptOrphans() error {
	const setChildSubreaper = 36
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("become the reaper of orphans: %w", errno)
	}
	return nil
}

// processes fails if a descendant outlives the grace, and ends those that do.
func processes() error {
	deadline := time.Now().Add(grace)
	for {
		for { // collect those that ended meanwhile
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.ECHILD) {
				return nil
			}
			if pid <= 0 {
				break
			}
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	var left []string
	for _, pid := range children() {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // gone is fine
		left = append(left, fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone is fine
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("processes still ran:\n  %s", strings.Join(left, "\n  "))
}

// children lists this process's children, those of its other threads too.
func children() []int {
	var pids []int
	tasks, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is well formed
	for _, task := range tasks {
		data, _ := os.ReadFile(task) // a thread may be gone
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func gitStatus() (string, error) {
	out, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	return string(out), nil
}

// changes fails if git shows other files than before.
func changes(before string) error {
	after, err := gitStatus()
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("git status changed\nfrom:\n%sto:\n%s", before, after)
	}
	return nil
}

// temporary fails if the command's own temporary folder is not empty.
func temporary(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return fmt.Errorf("temporary files stayed: %s", strings.Join(names, ", "))
}
