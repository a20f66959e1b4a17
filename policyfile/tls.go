package policyfile

import "go.yaml.in/yaml/v4"

// A TLS says by which certificate the gateway speaks HTTPS. The zero value is
// plain HTTP.
type TLS struct {
	// CertificateFile holds the certificate and those that lead to its root, in
	// PEM; "" if the file names none.
	CertificateFile string
	// KeyFile holds its private key, in PEM; "" if the file names none.
	KeyFile string
	// ClientCAFile holds the certificates of those who sign the certificates of
	// clients, in PEM; "" if no client is asked for one.
	ClientCAFile string
}

var tlsField = field[Server]{
	key: "tls", about: "The certificate by which the gateway speaks HTTPS: HTTP/1.1 and HTTP/2. Left out, it speaks plain HTTP/1.1.",
	schema: func() schema {
		s := tlsForm.asSchema()
		s["required"] = []string{"certificate_file", "key_file"}
		return s
	}(),
	read: func(d *decoder, n *yaml.Node, s *Server) { readTLS(d, n, &s.TLS) },
}

var h2cField = in("h2c", "Whether HTTP/2 is spoken without TLS, too, with clients that begin with it (h2c). Left out, it is not.", truth,
	func(s *Server, v bool) { s.H2C = v })

var tlsForm = form[TLS]{
	what:    "the tls part",
	example: "tls: {certificate_file: /etc/spillgate/tls.crt, key_file: /etc/spillgate/tls.key}",
	also:    map[string]string{"certificate": "certificate_file", "cert": "certificate_file", "cert_file": "certificate_file", "crt": "certificate_file", "key": "key_file", "ca_file": "client_ca_file", "client_ca": "client_ca_file"},
	fields: []field[TLS]{
		in("certificate_file", "The file with the certificate, and with those that lead to its root, in PEM.", filePath,
			func(t *TLS, v string) { t.CertificateFile = v }),
		in("key_file", "The file with the private key of the certificate, in PEM.", filePath,
			func(t *TLS, v string) { t.KeyFile = v }),
		in("client_ca_file", "The file with the certificates of those who sign the certificates of clients, in PEM: rules then know tls.client. Left out, no client is asked for one.", filePath,
			func(t *TLS, v string) { t.ClientCAFile = v }),
	},
}

func readTLS(d *decoder, n *yaml.Node, into *TLS) {
	var t TLS
	m, ok := tlsForm.read(d, n, &t)
	switch {
	case !ok || m.strange || m.bad["certificate_file"] || m.bad["key_file"] || m.bad["client_ca_file"]:
	case t.CertificateFile == "":
		d.fail(m.node, "add certificate_file: /etc/spillgate/tls.crt", "no certificate is named")
	case t.KeyFile == "":
		d.fail(m.node, "add key_file: /etc/spillgate/tls.key", "the certificate's key is not named")
	default:
		*into = t
	}
}
