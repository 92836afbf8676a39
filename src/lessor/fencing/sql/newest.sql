SELECT token FROM {table} WHERE resource = :resource
