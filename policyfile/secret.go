package policyfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// fingerprintKeyField names the file that keys the fingerprints of secrets.
var fingerprintKeyField = in("fingerprint_key_file", "The file whose text keys the fingerprints that stand for secret parts of keys. Left out, the key comes from the seed: the same for all who share a store, or who go on from a state file.", filePath,
	func(s *Server, v string) { s.FingerprintKeyFile = v })

// Bounds of the text that keys fingerprints, in bytes.
const (
	minFingerprintKey = 16
	maxFingerprintKey = 4096
)

// FingerprintKey reads the key of [Server.FingerprintKeyFile]: the file's
// bytes without the white space at their ends, 16 to 4096. It is nil if the
// policy names no file.
func (s *Server) FingerprintKey() ([]byte, error) {
	if s.FingerprintKeyFile == "" {
		return nil, nil
	}
	f, err := os.Open(s.FingerprintKeyFile)
	if err != nil {
		return nil, fmt.Errorf("policyfile: fingerprint_key_file: %w", err)
	}
	defer f.Close()
	key, err := io.ReadAll(io.LimitReader(f, 2*maxFingerprintKey))
	if err != nil {
		return nil, fmt.Errorf("policyfile: fingerprint_key_file: %w", err)
	}
	key = bytes.TrimSpace(key)
	if n := len(key); n < minFingerprintKey || n > maxFingerprintKey {
		return nil, fmt.Errorf("policyfile: fingerprint_key_file %q: holds %d bytes, want %d to %d; write some with: head -c 32 /dev/urandom | base64",
			s.FingerprintKeyFile, n, minFingerprintKey, maxFingerprintKey)
	}
	return key, nil
}
