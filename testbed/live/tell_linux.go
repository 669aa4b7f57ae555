package live

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
)

// tell puts a word to a path of the replica's metrics port. The address is not
// one of the shaped links.
func (s *Session) tell(ctx context.Context, r Replica, path, word string) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	url := "http://" + netip.AddrPortFrom(r.Addr, MetricsPort).String() + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(word))
	if err != nil {
		return fmt.Errorf("tell replica %s: %w", r.Name, err)
	}
	resp, err := (&http.Client{Transport: s.Scraper.http.Transport}).Do(req)
	if err != nil {
		return fmt.Errorf("tell replica %s: %w", r.Name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("tell replica %s %s %q: status %s: %s", r.Name, path, word, resp.Status, strings.TrimSpace(string(said)))
	}
	return nil
}
