/* A small HDFS in memory: a NameNode and a DataNode on 127.0.0.1, with as much of WebHDFS as net/hdfs/webhdfs.h asks
 * for. A test's hook sees every request first and may answer it, wrongly or not at all. */
#ifndef GRANARY_TESTS_FAKE_HDFS_FAKE_H
#define GRANARY_TESTS_FAKE_HDFS_FAKE_H

#include "fake/http_fake.h"

struct hdfs_fake;

/* node: 'n' the NameNode, 'd' the DataNode. true: answered, *next says what becomes of the connection. */
typedef bool hdfs_fake_hook(void *arg, char node, const struct http_fake_request *r, int fd, enum http_fake_next *next);

struct hdfs_fake *hdfs_fake_new(void);
void hdfs_fake_free(struct hdfs_fake *f);
void hdfs_fake_set_hook(struct hdfs_fake *f, hdfs_fake_hook *hook, void *arg);
const char *hdfs_fake_namenode(const struct hdfs_fake *f); /* "127.0.0.1:PORT" */
const char *hdfs_fake_datanode(const struct hdfs_fake *f);

/* Make or replace a file, and the directories above it. mtime in milliseconds. */
void hdfs_fake_put(struct hdfs_fake *f, const char *path, const void *data, size_t len, long long mtime_ms);
void hdfs_fake_remove(struct hdfs_fake *f, const char *path);

/* An answer with a status line ("403 Forbidden") and a RemoteException. */
void hdfs_fake_refuse(int fd, const char *status, const char *exception, const char *message);
/* The decoded value of a parameter of the request's query, or NULL; the caller's to free. */
char *hdfs_fake_parameter(const struct http_fake_request *r, const char *name);

#endif
