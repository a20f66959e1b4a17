package policyfile

import "path/filepath"

// fileNames are the places of the names of files in s.
func (s *Server) fileNames() []*string {
	return []*string{
		&s.UpstreamCAFile, &s.State, &s.FingerprintKeyFile,
		&s.TLS.CertificateFile, &s.TLS.KeyFile, &s.TLS.ClientCAFile,
		&s.Store.PasswordFile, &s.Store.SentinelPasswordFile, &s.Store.CAFile, &s.Store.CertificateFile, &s.Store.KeyFile, &s.Store.SeedFile,
	}
}

// from makes the names of files in s, which count from dir, those for a program that
// runs anywhere.
func (s *Server) from(dir string) {
	for _, name := range s.fileNames() {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(dir, *name)
		}
	}
}
