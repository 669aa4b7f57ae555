// Times LEMON's network simplex on one minimum cost flow problem.
//
// usage: lemon FILE
//
// FILE is in the DIMACS minimum cost flow format ("p min", "n", "a" lines); a
// capacity of -1 means none. For each line on standard input it solves once a
// number type and prints a line for each: type, objective, nanoseconds to build
// graph and solver, nanoseconds of run(). So the caller decides when, and can
// take turns: a machine that is busy for a while is so for both sides.
#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

#include <chrono>
#include <cstdio>
#include <vector>

struct Arc {
  int from, to;
  long long cap, cost;
};

struct Problem {
  std::vector<long long> supply;
  std::vector<Arc> arcs;
};

static bool read(const char* path, Problem& p) {
  std::FILE* in = std::fopen(path, "r");
  if (!in) return false;
  char kind;
  while (std::fscanf(in, " %c", &kind) == 1) {
    if (kind == 'p') {
      int nodes, arcs;
      if (std::fscanf(in, " min %d %d", &nodes, &arcs) != 2) return false;
      p.supply.assign(nodes, 0);
      p.arcs.reserve(arcs);
    } else if (kind == 'n') {
      int node;
      long long supply;
      if (std::fscanf(in, "%d %lld", &node, &supply) != 2) return false;
      p.supply.at(node - 1) = supply;
    } else if (kind == 'a') {
      Arc a;
      long long low;
      if (std::fscanf(in, "%d %d %lld %lld %lld", &a.from, &a.to, &low, &a.cap, &a.cost) != 5) return false;
      p.arcs.push_back(a);
    } else {
      return false;
    }
  }
  std::fclose(in);
  return true;
}

// Number is the type of flows and costs: long long is what the Go side uses,
// int is LEMON's default and moves half the memory.
template <typename Number>
static bool measure(const char* type, const Problem& p) {
  typedef std::chrono::steady_clock Clock;
  typedef lemon::NetworkSimplex<lemon::SmartDigraph, Number> Simplex;

  const Clock::time_point start = Clock::now();
  lemon::SmartDigraph graph;
  graph.reserveNode(p.supply.size());
  graph.reserveArc(p.arcs.size());
  for (size_t v = 0; v < p.supply.size(); ++v) graph.addNode();
  lemon::SmartDigraph::ArcMap<Number> cost(graph), cap(graph);
  lemon::SmartDigraph::NodeMap<Number> supply(graph);
  Simplex simplex(graph);
  for (size_t e = 0; e < p.arcs.size(); ++e) {
    const Arc& a = p.arcs[e];
    lemon::SmartDigraph::Arc arc = graph.addArc(graph.nodeFromId(a.from - 1), graph.nodeFromId(a.to - 1));
    cost[arc] = a.cost;
    cap[arc] = a.cap < 0 ? simplex.INF : a.cap;
  }
  for (size_t v = 0; v < p.supply.size(); ++v) supply[graph.nodeFromId(v)] = p.supply[v];
  simplex.reset();
  simplex.upperMap(cap).costMap(cost).supplyMap(supply);

  const Clock::time_point built = Clock::now();
  const bool optimal = simplex.run() == Simplex::OPTIMAL;
  const Clock::time_point solved = Clock::now();
  if (!optimal) return false;

  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  std::printf("%s %lld %lld %lld\n", type, simplex.template totalCost<long long>(),
              (long long)duration_cast<nanoseconds>(built - start).count(),
              (long long)duration_cast<nanoseconds>(solved - built).count());
  return true;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  Problem p;
  if (!read(argv[1], p)) {
    std::fprintf(stderr, "%s: cannot be read as a DIMACS minimum cost flow problem\n", argv[1]);
    return 2;
  }
  for (int c; (c = std::getchar()) != EOF;) {
    if (c != '\n') continue;
    if (!measure<long long>("int64", p) || !measure<int>("int32", p)) {
      std::fprintf(stderr, "%s: LEMON finds no optimum\n", argv[1]);
      return 1;
    }
    std::fflush(stdout);
  }
  return 0;
}
