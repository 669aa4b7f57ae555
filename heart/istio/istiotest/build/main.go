// Build puts istiod into the cache of long builds, for the tests that need it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"heartbed/heart/istio/istiotest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	at, err := istiotest.BuildIstiod(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "build istiod:", err)
		os.Exit(1)
	}
	fmt.Println(at)
}
