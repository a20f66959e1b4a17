package nginxtest_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
)

func TestServesAndIsGoneAfterTheTest(t *testing.T) {
	var s *nginxtest.Server
	t.Run("serve", func(t *testing.T) {
		s = nginxtest.Start(t, "location = /hello { return 200 hello; }")
		if err := os.WriteFile(filepath.Join(s.Root, "file.txt"), []byte("a file"), 0o644); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{"/hello": "hello", "/file.txt": "a file"} {
			resp, err := http.Get("http://" + s.Addr + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(body) != want || !strings.HasPrefix(resp.Header.Get("Server"), "nginx") {
				t.Errorf("%s: %q by %q, %v; want %q by nginx", path, body, resp.Header.Get("Server"), err, want)
			}
		}
		http.DefaultClient.CloseIdleConnections()
	})
	if conn, err := net.Dial("tcp", s.Addr); err == nil {
		conn.Close()
		t.Errorf("%s still answers", s.Addr)
	}
	if err := syscall.Kill(s.Process, 0); err == nil {
		t.Errorf("process %d is still there", s.Process)
	}
}
