package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/spillgate/spillgate"
)

// saveEvery is how often the state is saved while serving: what a crash loses
// at most.
const saveEvery = time.Minute

// A stateFile keeps what a memory has counted over a restart.
type stateFile struct {
	path   string
	memory *spillgate.Memory
	logger *slog.Logger
}

// load restores the file, if there is one and it isn't to be passed over. The error
// has an exit code.
func (s *stateFile) load(startEmpty bool) error {
	if startEmpty {
		s.logger.Warn("starting empty, as told: what the state file says is passed over", "state", s.path)
		return nil
	}
	switch err := s.memory.RestoreFile(s.path); {
	case errors.Is(err, fs.ErrNotExist):
		s.logger.Info("no state file yet: this is a first start", "state", s.path)
	case errors.Is(err, spillgate.ErrSnapshot):
		return &exitError{exitRunning, fmt.Errorf("state: %w; or start with --start-empty, and every limit begins anew", err)}
	case err != nil:
		return &exitError{exitUsage, fmt.Errorf("state: %w", err)}
	default:
		s.logger.Info("the state was restored", "state", s.path)
	}
	return nil
}

func (s *stateFile) save() error {
	if err := s.memory.SnapshotFile(s.path); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// keep saves the state every minute until ctx ends. It returns when it does
// nothing more.
func (s *stateFile) keep(ctx context.Context) {
	t := time.NewTicker(saveEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := s.save(); err != nil {
				s.logger.Error("the state was not saved: a crash now loses what was counted since it last was", "state", s.path, "error", err)
			}
		}
	}
}

// keeping saves once, so that a path that can't be written is found out now,
// runs keep, and returns what ends it and saves for the last time.
func (s *stateFile) keeping() (stop func() error, err error) {
	if err := s.save(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.keep(ctx) }()
	return func() error {
		cancel()
		<-ended
		return s.save()
	}, nil
}
